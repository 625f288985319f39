// A client and a server on the Go SDK, for the matrix of docs/revisions.md. It is built with several releases of the SDK:
// the one of this folder's go.mod, and those of the folders beside it, which are called by the newest revision that the
// release knows.
//
//	client URL...   tries everything at servers with our fixtures, and prints a line for each with what came of it
//	server PORT     serves what clients try, over Streamable HTTP with sessions
//
//lint:file-ignore SA1019 older revisions are what this is about
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
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
		serve(os.Args[2])
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

type asking struct {
	Message string `json:"message,omitempty"`
	Prompt  string `json:"prompt,omitempty"`
}

func text(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func serve(port string) {
	server := mcp.NewServer(&mcp.Implementation{Name: "go", Version: "1.0.0"}, nil)
	tool := func(name string, act func(context.Context, *mcp.CallToolRequest, asking) (*mcp.CallToolResult, error)) {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: "Tests " + name},
			func(ctx context.Context, request *mcp.CallToolRequest, in asking) (*mcp.CallToolResult, any, error) {
				result, err := act(ctx, request, in)
				return result, nil, err
			})
	}
	tool("test_simple_text", func(context.Context, *mcp.CallToolRequest, asking) (*mcp.CallToolResult, error) {
		return text("This is a simple text response for testing."), nil
	})
	tool("test_tool_with_progress", func(ctx context.Context, request *mcp.CallToolRequest, _ asking) (*mcp.CallToolResult, error) {
		for _, progress := range []float64{0, 50, 100} {
			if token := request.Params.GetProgressToken(); token != nil {
				told := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: progress, Total: 100}
				if err := request.Session.NotifyProgress(ctx, told); err != nil {
					return nil, err
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
		return text("done"), nil
	})
	tool("test_elicitation", func(ctx context.Context, request *mcp.CallToolRequest, in asking) (*mcp.CallToolResult, error) {
		form := map[string]any{
			"type":       "object",
			"properties": map[string]any{"username": map[string]any{"type": "string"}, "email": map[string]any{"type": "string"}},
			"required":   []string{"username"},
		}
		result, err := request.Session.Elicit(ctx, &mcp.ElicitParams{Message: in.Message, RequestedSchema: form})
		if err != nil {
			return nil, err
		}
		return text("User response: " + result.Action), nil
	})
	tool("test_sampling", func(ctx context.Context, request *mcp.CallToolRequest, in asking) (*mcp.CallToolResult, error) {
		message := &mcp.SamplingMessage{Role: "user", Content: &mcp.TextContent{Text: in.Prompt}}
		_, err := request.Session.CreateMessage(ctx, &mcp.CreateMessageParams{Messages: []*mcp.SamplingMessage{message}, MaxTokens: 100})
		if err != nil {
			return nil, err
		}
		return text("LLM response"), nil
	})
	server.AddResource(&mcp.Resource{URI: "test://static-text", Name: "text", MIMEType: "text/plain"},
		func(_ context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			contents := &mcp.ResourceContents{URI: request.Params.URI, MIMEType: "text/plain", Text: "This is the content of the resource."}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}}, nil
		})
	server.AddPrompt(&mcp.Prompt{Name: "test_simple_prompt"},
		func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			message := &mcp.PromptMessage{Role: "user", Content: &mcp.TextContent{Text: "This is a simple prompt for testing."}}
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{message}}, nil
		})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+port, handler))
}
