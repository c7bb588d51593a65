package rest

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// algorithm of the signature, the first word of the Authorization header.
const algorithm = "SDK-HMAC-SHA256"

// dateHeader is the time of a request in the form dateFormat, UTC; it is part of what is signed.
const (
	dateHeader = "X-Sdk-Date"
	dateFormat = "20060102T150405Z"
)

// sign sets the date and the signature of a request whose other headers are final. body is what will be sent.
func sign(r *http.Request, body []byte, accessKey, secretKey string, now time.Time) {
	date := now.UTC().Format(dateFormat)
	r.Header.Set(dateHeader, date)
	headers, canonical := signedHeaders(r.Header)
	request := strings.Join([]string{
		r.Method, canonicalPath(r.URL), canonicalQuery(r.URL.Query()), canonical, headers, hexHash(body),
	}, "\n")
	mac := hmac.New(sha256.New, []byte(secretKey))
	mac.Write([]byte(algorithm + "\n" + date + "\n" + hexHash([]byte(request))))
	r.Header.Set("Authorization", algorithm+" Access="+accessKey+", SignedHeaders="+headers+", Signature="+hex.EncodeToString(mac.Sum(nil)))
}

func hexHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// signedHeaders lists the names of the headers that are signed, and their canonical form. The platform leaves out those that a
// proxy is known to change.
func signedHeaders(h http.Header) (names, canonical string) {
	var list []string
	values := map[string]string{}
	for name, v := range h {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "content-type") || strings.Contains(lower, "_") || lower == "authorization" {
			continue
		}
		list = append(list, lower)
		values[lower] = strings.TrimSpace(strings.Join(v, ","))
	}
	slices.Sort(list)
	var text strings.Builder
	for _, name := range list {
		text.WriteString(name + ":" + values[name] + "\n")
	}
	return strings.Join(list, ";"), text.String()
}

// canonicalPath always ends with a slash, in the signature only.
func canonicalPath(u *url.URL) string {
	segments := strings.Split(cmp.Or(u.Path, "/"), "/")
	for i, s := range segments {
		segments[i] = escape(s)
	}
	path := strings.Join(segments, "/")
	if !strings.HasSuffix(path, "/") {
		path += "/"
	}
	return path
}

func canonicalQuery(q url.Values) string {
	var pairs []string
	for key, values := range q {
		for _, v := range values {
			pairs = append(pairs, escape(key)+"="+escape(v))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// escape percent-encodes everything but letters, digits and "-_.~". url.QueryEscape does too, but for the space.
func escape(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}
