// What a client is asked before it has its result.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// asked is what the client answers to a question.
func asked(ctx context.Context, session *mcp.ServerSession, question question, words map[string]any) (any, error) {
	params := fill(question.Params, words)
	switch question.Method {
	case "sampling/createMessage":
		params, err := as[mcp.CreateMessageParams](params, nil)
		if err != nil {
			return nil, err
		}
		return session.CreateMessage(ctx, params)
	case "elicitation/create":
		params, err := as[mcp.ElicitParams](params, nil)
		if err != nil {
			return nil, err
		}
		return session.Elicit(ctx, params)
	case "roots/list":
		return session.ListRoots(ctx, nil)
	default:
		return nil, fmt.Errorf("no question: %s", question.Method)
	}
}

// whole is what the words are filled with in the end: what the client answered in each round.
func whole(words map[string]any, answers []map[string]any) (map[string]any, error) {
	text, err := json.Marshal(answers)
	words = maps.Clone(words)
	words["answers"] = string(text)
	return words, err
}

// ask is what a request comes to for which a client is asked in several rounds: the words with its answers or, where the
// request stands alone and something is still to be asked, a result that asks for it.
func ask(ctx context.Context, session *mcp.ServerSession, params any, asking asking, words map[string]any) (map[string]any, any, error) {
	rounds := asking.Rounds
	standing, err := as[alone](params, nil)
	if err != nil {
		return nil, nil, err
	}
	can := standing.Meta.Capabilities
	if standing.Meta.Revision == "" {
		capabilities, err := as[map[string]any](session.InitializeParams().Capabilities, nil)
		if err != nil {
			return nil, nil, err
		}
		can = *capabilities
	}
	if asking.Choose != nil {
		round := map[string]question{}
		for name, questions := range asking.Choose {
			if _, able := can[name]; able {
				maps.Copy(round, questions)
			}
		}
		rounds = []map[string]question{round}
	}
	if standing.Meta.Revision != "" {
		return askAlone(standing, rounds, asking.State, words)
	}
	answers := []map[string]any{}
	for _, round := range rounds {
		given, err := askAtOnce(ctx, session, round, words)
		if err != nil {
			return nil, nil, err
		}
		answers = append(answers, given)
	}
	words, err = whole(words, answers)
	return words, nil, err
}

// askAlone is the same for a request that stands alone, where the release knows such: alone.go sets it.
var askAlone func(request *alone, rounds []map[string]question, keepsState bool, words map[string]any) (map[string]any, any, error)

// alone is what a request says that stands alone.
type alone struct {
	Meta struct {
		Revision     string         `json:"io.modelcontextprotocol/protocolVersion"`
		Capabilities map[string]any `json:"io.modelcontextprotocol/clientCapabilities"`
	} `json:"_meta"`
	Responses map[string]any `json:"inputResponses"`
	State     string         `json:"requestState"`
}

// askAtOnce is what a client with a session answers to questions that are asked at once.
func askAtOnce(ctx context.Context, session *mcp.ServerSession, round map[string]question, words map[string]any) (map[string]any, error) {
	var group sync.WaitGroup
	var lock sync.Mutex
	var failed error
	answers := map[string]any{}
	for key, question := range round {
		group.Add(1)
		go func() {
			defer group.Done()
			answer, err := asked(ctx, session, question, words)
			lock.Lock()
			defer lock.Unlock()
			if answers[key] = answer; err != nil {
				failed = err
			}
		}()
	}
	group.Wait()
	return answers, failed
}
