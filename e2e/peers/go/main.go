// Command go-server is an MCP server on the official Go SDK, in a static binary: a peer for tests. Its tools do what
// tests need a server to do (take their time, tell of progress, die in a call); its flags make it the servers that
// go wrong. The protocol is the SDK's, none of it is ours.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:3000", "address to serve Streamable HTTP at")
	path := flag.String("path", "/mcp", "path to serve it at")
	stdio := flag.Bool("stdio", false, "serve standard input and output instead")
	stateless := flag.Bool("stateless", false, "give out no session ids")
	json := flag.Bool("json", false, "answer in JSON where an event stream is not needed")
	exit := flag.Int("exit", 0, "write two lines to standard error and exit with this status, at once")
	exitAfter := flag.Duration("exit-after", 0, "exit with status 1 after so long")
	mute := flag.Bool("mute", false, "accept requests and never answer them")
	hold := flag.Int("hold", 0, "hold so many MiB of memory from the start on")
	flag.Parse()

	log.SetFlags(0)
	if *exit != 0 {
		log.Println("reading /etc/go-server/settings.json")
		log.Println("fatal: no such database")
		os.Exit(*exit)
	}
	held := make([]byte, *hold<<20)
	for page := 0; page < len(held); page += os.Getpagesize() {
		held[page] = 1
	}
	defer runtime.KeepAlive(held)
	if *exitAfter > 0 {
		time.AfterFunc(*exitAfter, func() { log.Fatal("fatal: the database hung up") })
	}
	if *stdio {
		if err := newServer().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Fatal(err)
		}
		return
	}

	// One server for all sessions, so that a tool added in one shows in the others.
	server := newServer()
	var handler http.Handler = mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: *stateless, JSONResponse: *json},
	)
	if *mute {
		handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
	}
	mux := http.NewServeMux()
	mux.Handle(*path, handler)
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	// The address is printed so that a test can ask for port 0.
	log.Printf("serving http://%s%s", listener.Addr(), *path)
	log.Fatal(http.Serve(listener, mux))
}

type echoInput struct {
	Text string `json:"text" jsonschema:"what to say back"`
}

type addInput struct {
	A float64 `json:"a" jsonschema:"the first number"`
	B float64 `json:"b" jsonschema:"the second number"`
}

type addOutput struct {
	Sum float64 `json:"sum"`
}

type slowInput struct {
	Milliseconds int `json:"milliseconds" jsonschema:"how long to take"`
	Steps        int `json:"steps,omitempty" jsonschema:"how often to tell of progress"`
}

type exitInput struct {
	Status int `json:"status" jsonschema:"the exit status"`
}

type growInput struct {
	Name string `json:"name" jsonschema:"the name of the new tool"`
}

func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "go-server", Title: "Go SDK server", Version: "1.0.0"}, nil)

	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Says the text back."}, echo)
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Adds two numbers."},
		func(_ context.Context, _ *mcp.CallToolRequest, in addInput) (*mcp.CallToolResult, addOutput, error) {
			return nil, addOutput{Sum: in.A + in.B}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "slow", Description: "Takes its time, and tells how far it is."}, slow)
	mcp.AddTool(server, &mcp.Tool{Name: "fail", Description: "Fails, as a tool may."},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, fmt.Errorf("it failed, as it was asked to")
		})
	mcp.AddTool(server, &mcp.Tool{Name: "exit", Description: "Ends the whole server in the middle of the call."},
		func(_ context.Context, _ *mcp.CallToolRequest, in exitInput) (*mcp.CallToolResult, any, error) {
			log.Printf("asked to exit with status %d", in.Status)
			os.Exit(in.Status)
			return nil, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "grow", Description: "Adds a tool to the running server."},
		func(_ context.Context, _ *mcp.CallToolRequest, in growInput) (*mcp.CallToolResult, any, error) {
			mcp.AddTool(server, &mcp.Tool{Name: in.Name, Description: "Came later."}, echo)
			return text("added " + in.Name), nil, nil
		})

	server.AddResource(
		&mcp.Resource{URI: "memo://greeting", Name: "greeting", MIMEType: "text/plain"},
		func(_ context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			contents := &mcp.ResourceContents{URI: request.Params.URI, MIMEType: "text/plain", Text: "hello"}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}}, nil
		})
	server.AddPrompt(
		&mcp.Prompt{Name: "greet", Arguments: []*mcp.PromptArgument{{Name: "name", Required: true}}},
		func(_ context.Context, request *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			content := &mcp.TextContent{Text: "Greet " + request.Params.Arguments["name"] + "."}
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: content}}}, nil
		})
	return server
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in echoInput) (*mcp.CallToolResult, any, error) {
	return text(in.Text), nil, nil
}

func slow(ctx context.Context, request *mcp.CallToolRequest, in slowInput) (*mcp.CallToolResult, any, error) {
	steps := max(in.Steps, 1)
	for step := range steps {
		select {
		case <-ctx.Done():
			log.Print("slow: cancelled")
			return nil, nil, ctx.Err()
		case <-time.After(time.Duration(in.Milliseconds) * time.Millisecond / time.Duration(steps)):
		}
		if token := request.Params.GetProgressToken(); token != nil {
			progress := &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: float64(step + 1), Total: float64(steps),
			}
			// The client may have gone; the call's own context says so.
			_ = request.Session.NotifyProgress(ctx, progress)
		}
	}
	return text(fmt.Sprintf("took %d ms", in.Milliseconds)), nil, nil
}

func text(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
