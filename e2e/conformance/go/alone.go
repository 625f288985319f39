package main

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What a client has to be able to do to be asked.
var needs = map[string]string{"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}

// Releases that know nothing of requests that stand alone are built without this file.
func init() {
	askAlone = func(request *alone, rounds []map[string]question, keepsState bool, words map[string]any) (map[string]any, any, error) {
		answers := []map[string]any{}
		if keepsState && request.State != "" {
			// It is not signed: one who made it up would gain nothing here.
			if err := json.Unmarshal([]byte(request.State), &answers); err != nil {
				return nil, nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "a state of somebody else"}
			}
		}
		if len(answers) < len(rounds) {
			answer := map[string]any{}
			for key := range rounds[len(answers)] {
				if request.Responses[key] != nil {
					answer[key] = request.Responses[key]
				}
			}
			if len(answer) == len(rounds[len(answers)]) {
				answers = append(answers, answer)
			}
		}
		if len(answers) >= len(rounds) {
			words, err := whole(words, answers)
			return words, nil, err
		}
		requests, missing := map[string]any{}, map[string]any{}
		for key, question := range rounds[len(answers)] {
			requests[key] = map[string]any{"method": question.Method, "params": fill(question.Params, words)}
			if _, able := request.Meta.Capabilities[needs[question.Method]]; !able {
				missing[needs[question.Method]] = map[string]any{}
			}
		}
		if len(missing) > 0 {
			data, err := json.Marshal(map[string]any{"requiredCapabilities": missing})
			if err != nil {
				return nil, nil, err
			}
			return nil, nil, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client lacks a capability", Data: data}
		}
		asked := map[string]any{"resultType": "input_required", "inputRequests": requests}
		if keepsState {
			state, err := json.Marshal(answers)
			if err != nil {
				return nil, nil, err
			}
			asked["requestState"] = string(state)
		}
		return nil, asked, nil
	}
}
