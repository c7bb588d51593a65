package local

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// finalError ends an await at once.
type finalError struct{ error }

func (f finalError) Unwrap() error { return f.error }

func final(err error) error { return finalError{err} }

// await asks again and again until the condition answers nil. It ends early with a final error, and with the context, whose
// cause and the condition's last answer it then reports. It is for conditions that nobody announces, such as a program
// beginning to listen; where there is something to watch, watch.
func await(ctx context.Context, every time.Duration, condition func(context.Context) error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		var stop finalError
		if errors.As(err, &stop) {
			return stop.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}

// answers is a readiness check: an HTTP GET that answers 200.
func answers(url string, config *tls.Config) func(context.Context) error {
	client := &http.Client{
		Timeout: 5 * time.Second,
		// No connection is kept: each question is asked of whoever listens now.
		Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true},
	}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return final(err)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(response.Body, 512))
			return fmt.Errorf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(body)))
		}
		return nil
	}
}
