// A server, which offers what its revision knows of ../fixtures.json.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func newServer(have *fixtures, revision string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "go", Version: "1.0.0"}, &mcp.ServerOptions{
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: have.Completion}, nil
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	// What is added again has changed.
	again := map[string]func(){}
	for _, entry := range have.Tools {
		if entry.Since > revision {
			continue
		}
		call := func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			words := map[string]any{}
			if len(request.Params.Arguments) > 0 {
				if err := json.Unmarshal(request.Params.Arguments, &words); err != nil {
					return nil, err
				}
			}
			for _, data := range entry.Logs {
				if err := request.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: data}); err != nil {
					return nil, err
				}
				time.Sleep(50 * time.Millisecond)
			}
			for _, progress := range entry.Progress {
				if token := request.Params.GetProgressToken(); token != nil {
					told := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: progress, Total: 100}
					if err := request.Session.NotifyProgress(ctx, told); err != nil {
						return nil, err
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
			if change, changes := again[entry.Changed]; changes {
				change()
			}
			words, asked, err := ask(ctx, request.Session, request.Params, entry.asking, words)
			if asked != nil || err != nil {
				return as[mcp.CallToolResult](asked, err)
			}
			return as[mcp.CallToolResult](fill(entry.Result, words), nil)
		}
		again["tools"] = func() { server.AddTool(entry.Tool, call) }
		again["tools"]()
	}
	for _, entry := range have.Prompts {
		if entry.Since > revision {
			continue
		}
		get := func(ctx context.Context, request *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			words := map[string]any{}
			for name, value := range request.Params.Arguments {
				words[name] = value
			}
			words, asked, err := ask(ctx, request.Session, request.Params, entry.asking, words)
			if asked != nil || err != nil {
				return as[mcp.GetPromptResult](asked, err)
			}
			return as[mcp.GetPromptResult](map[string]any{"messages": fill(entry.Messages, words)}, nil)
		}
		again["prompts"] = func() { server.AddPrompt(entry.Prompt, get) }
		again["prompts"]()
	}
	for _, entry := range have.Resources {
		server.AddResource(entry.Resource, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{entry.Contents}}, nil
		})
	}
	server.AddResourceTemplate(have.Template.Template, func(_ context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		contents, uri := have.Template.Contents, request.Params.URI
		id := strings.TrimSuffix(strings.TrimPrefix(uri, have.Template.Prefix), have.Template.Suffix)
		// Its text is JSON, whose braces are no words to fill in.
		contents.URI, contents.Text = uri, strings.ReplaceAll(contents.Text, "{id}", id)
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&contents}}, nil
	})
	return server
}

func serve(path, revision, transport, port string) {
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	var have fixtures
	if err := json.Unmarshal(text, &have); err != nil {
		log.Fatal(err)
	}
	server := newServer(&have, revision)
	always := func(*http.Request) *mcp.Server { return server }
	switch transport {
	case "stdio":
		log.Fatal(server.Run(context.Background(), &mcp.StdioTransport{}))
	case "sse":
		log.Fatal(http.ListenAndServe("127.0.0.1:"+port, ours(mcp.NewSSEHandler(always, nil))))
	default:
		options := &mcp.StreamableHTTPOptions{Stateless: revision >= "2026-07-28"}
		log.Fatal(http.ListenAndServe("127.0.0.1:"+port, ours(mcp.NewStreamableHTTPHandler(always, options))))
	}
}

// ours serves names of this machine only, for which older releases do not look.
func ours(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		for _, place := range []string{"http://" + request.Host, request.Header.Get("Origin")} {
			at, err := url.Parse(place)
			if place != "" && (err != nil || !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, at.Hostname())) {
				http.Error(writer, "not this machine", http.StatusForbidden)
				return
			}
		}
		handler.ServeHTTP(writer, request)
	})
}
