// A client and a server on the Go SDK, for the suite and for the matrix of docs/revisions.md. It is built with several
// releases of the SDK: the one of this folder's go.mod, and those of the folders beside it, which are called by the newest
// revision that the release knows.
//
//	client URL...                             tries everything at servers with our fixtures, and prints a line for each
//	                                          with what came of it
//	server FIXTURES REVISION TRANSPORT PORT   serves what the revision has of ../fixtures.json, over http, sse or
//	                                          stdio, which takes no port
//
//lint:file-ignore SA1019 older revisions are what this is about
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	switch os.Args[1] {
	case "client":
		var all sync.WaitGroup
		for _, url := range os.Args[2:] {
			all.Add(1)
			go func() {
				defer all.Done()
				line, _ := json.Marshal([]any{url, explore(url)})
				fmt.Printf("%s\n", line)
			}()
		}
		all.Wait()
	case "server":
		serve(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	}
}

// explore says for each feature `works`, `-` if the server does not have it, or what went wrong.
func explore(url string) map[string]string {
	ctx := context.Background()
	var asked, sampled, steps atomic.Int32
	var progressed func()
	var lock sync.Mutex
	client := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, &mcp.ClientOptions{
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			sampled.Add(1)
			return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "sampled"}}, nil
		},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked.Add(1)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"username": "u", "email": "u@example.com"}}, nil
		},
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) {
			steps.Add(1)
			lock.Lock()
			defer lock.Unlock()
			if progressed != nil {
				progressed()
			}
		},
	})
	results := map[string]string{}
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		results["connect"] = err.Error()
		return results
	}
	results["connect"] = "works"
	defer session.Close()

	attempt := func(feature string, act func() (bool, error)) {
		works, err := act()
		switch {
		case err != nil:
			results[feature] = err.Error()
		case works:
			results[feature] = "works"
		default:
			results[feature] = "wrong"
		}
	}
	call := func(ctx context.Context, name string, arguments map[string]any) (*mcp.CallToolResult, error) {
		params := &mcp.CallToolParams{Name: name, Arguments: arguments}
		if name == "test_tool_with_progress" {
			params.Meta = mcp.Meta{"progressToken": fmt.Sprint(time.Now().UnixNano())}
		}
		result, err := session.CallTool(ctx, params)
		if err == nil && result.IsError {
			text, _ := json.Marshal(result.Content)
			err = errors.New(string(text))
		}
		return result, err
	}
	say := func() (bool, error) {
		result, err := call(ctx, "test_simple_text", map[string]any{})
		return err == nil && len(result.Content) == 1, err
	}
	var names []string
	attempt("tool", func() (bool, error) {
		for tool, err := range session.Tools(ctx, nil) {
			if err != nil {
				return false, err
			}
			names = append(names, tool.Name)
		}
		return say()
	})
	attempt("resource", func() (bool, error) {
		result, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: "test://static-text"})
		return err == nil && len(result.Contents) == 1 && result.Contents[0].Text != "", err
	})
	attempt("prompt", func() (bool, error) {
		result, err := session.GetPrompt(ctx, &mcp.GetPromptParams{Name: "test_simple_prompt"})
		return err == nil && len(result.Messages) == 1, err
	})
	attempt("progress", func() (bool, error) {
		_, err := call(ctx, "test_tool_with_progress", map[string]any{})
		// What is heard in a call is handled beside its answer.
		for range 100 {
			if steps.Load() == 3 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return steps.Load() == 3, err
	})
	attempt("cancellation", func() (bool, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		lock.Lock()
		progressed = cancel
		lock.Unlock()
		if _, err := call(ctx, "test_tool_with_progress", map[string]any{}); !errors.Is(err, context.Canceled) {
			return false, err
		}
		// What is left goes on.
		return say()
	})
	ask := func(feature, name string, arguments map[string]any, heard *atomic.Int32) {
		if !slices.Contains(names, name) {
			results[feature] = "-"
			return
		}
		attempt(feature, func() (bool, error) {
			_, err := call(ctx, name, arguments)
			return heard.Load() == 1, err
		})
	}
	ask("elicitation", "test_elicitation", map[string]any{"message": "Who?"}, &asked)
	ask("sampling", "test_sampling", map[string]any{"prompt": "Say"}, &sampled)
	return results
}
