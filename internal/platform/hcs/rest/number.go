package rest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// number is an integer that some services write as a number, others as a string, and some leave out or null.
type number int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if text == "" || text == "null" {
		*n = 0
		return nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("%s is not a number", data)
	}
	*n = number(v)
	return nil
}

// flag is a boolean that some services write as a string.
type flag bool

// UnmarshalJSON implements json.Unmarshaler.
func (f *flag) UnmarshalJSON(data []byte) error {
	*f = flag(strings.EqualFold(strings.Trim(string(data), `"`), "true"))
	return nil
}

// word is a string that may be null or, where a service is careless, a number.
type word string

// UnmarshalJSON implements json.Unmarshaler.
func (w *word) UnmarshalJSON(data []byte) error {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		*w = ""
	case string:
		*w = word(v)
	default:
		*w = word(strings.Trim(string(data), `"`))
	}
	return nil
}
