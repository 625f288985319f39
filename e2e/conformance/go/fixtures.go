// What a server offers: ../fixtures.json, as the SDK's own types.
package main

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type question struct {
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
}

// asking is what a client is asked before it has its result: in rounds of questions that are asked at once, or by what it
// can.
type asking struct {
	State  bool                           `json:"state"`
	Rounds []map[string]question          `json:"rounds"`
	Choose map[string]map[string]question `json:"choose"`
}

type fixtures struct {
	Tools []struct {
		Since    string    `json:"since"`
		Tool     *mcp.Tool `json:"tool"`
		Result   any       `json:"result"`
		Logs     []string  `json:"logs"`
		Progress []float64 `json:"progress"`
		Changed  string    `json:"changed"`
		asking
	} `json:"tools"`
	Prompts []struct {
		Since  string      `json:"since"`
		Prompt *mcp.Prompt `json:"prompt"`
		asking
		Messages any `json:"messages"`
	} `json:"prompts"`
	Resources []struct {
		Resource *mcp.Resource         `json:"resource"`
		Contents *mcp.ResourceContents `json:"contents"`
	} `json:"resources"`
	Template struct {
		Template *mcp.ResourceTemplate `json:"template"`
		Prefix   string                `json:"prefix"`
		Suffix   string                `json:"suffix"`
		Contents mcp.ResourceContents  `json:"contents"`
	} `json:"template"`
	Completion mcp.CompletionResultDetails `json:"completion"`
}

var word = regexp.MustCompile(`\{(\w+)\}`)

// fill is a value with every `{name}` in its texts filled in.
func fill(value any, words map[string]any) any {
	switch value := value.(type) {
	case string:
		return word.ReplaceAllStringFunc(value, func(found string) string {
			if filled, known := words[found[1:len(found)-1]]; known {
				return fmt.Sprint(filled)
			}
			return found
		})
	case []any:
		filled := make([]any, len(value))
		for at, item := range value {
			filled[at] = fill(item, words)
		}
		return filled
	case map[string]any:
		filled := map[string]any{}
		for key, item := range value {
			filled[key] = fill(item, words)
		}
		return filled
	default:
		return value
	}
}

// as is a value in the SDK's own type, if there was no error before.
func as[T any](value any, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var typed T
	return &typed, json.Unmarshal(text, &typed)
}
