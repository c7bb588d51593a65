package hcs

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxSkew between the date of a request and the platform's clock.
const maxSkew = 15 * time.Minute

const (
	algorithm  = "SDK-HMAC-SHA256"
	dateHeader = "X-Sdk-Date"
	dateFormat = "20060102T150405Z"
	// unsigned stands for the body's hash where the client says so.
	contentHeader = "X-Sdk-Content-Sha256"
)

// authenticate checks the signature of a request: computed here from what arrived, with nothing of the client's code.
func (s *Server) authenticate(r *http.Request, body []byte) *refusal {
	refuse := func(why string) *refusal {
		return &refusal{status: http.StatusUnauthorized, shape: shapeGateway, code: "APIGW.0301", message: "Incorrect IAM authentication information: " + why}
	}
	fields := strings.TrimPrefix(r.Header.Get("Authorization"), algorithm+" ")
	if fields == r.Header.Get("Authorization") {
		return refuse("the Authorization header does not begin with " + algorithm)
	}
	part := map[string]string{}
	for _, f := range strings.Split(fields, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(f), "=")
		part[key] = value
	}
	date, err := time.Parse(dateFormat, r.Header.Get(dateHeader))
	switch {
	case err != nil:
		return refuse("the header " + dateHeader + " is missing or not a date")
	case s.opts.Now().Sub(date).Abs() > maxSkew:
		return refuse("the date of the request is too far away from the time here")
	case part["Access"] != s.opts.AccessKey:
		return refuse("the access key is not known")
	}
	headers := strings.Split(part["SignedHeaders"], ";")
	if !slices.Contains(headers, strings.ToLower(dateHeader)) {
		return refuse("the date is not among the signed headers")
	}
	var canonical strings.Builder
	for _, h := range headers {
		value := strings.Join(r.Header.Values(h), ",")
		if h == "host" {
			value = r.Host
		}
		canonical.WriteString(h + ":" + strings.TrimSpace(value) + "\n")
	}
	hash := hexHash(body)
	if declared := r.Header.Get(contentHeader); declared != "" {
		hash = declared
	}
	request := strings.Join([]string{r.Method, canonicalPath(r.URL.Path), canonicalQuery(r.URL.RawQuery), canonical.String(), part["SignedHeaders"], hash}, "\n")
	mac := hmac.New(sha256.New, []byte(s.opts.SecretKey))
	mac.Write([]byte(algorithm + "\n" + r.Header.Get(dateHeader) + "\n" + hexHash([]byte(request))))
	if !hmac.Equal([]byte(hex.EncodeToString(mac.Sum(nil))), []byte(part["Signature"])) {
		return refuse("verify aksk signature fail")
	}
	if p := r.Header.Get("X-Project-Id"); p != "" && p != s.opts.ProjectID {
		return &refusal{status: http.StatusForbidden, shape: shapeGateway, code: "APIGW.0302", message: "the user has no role in project " + p}
	}
	return nil
}

func hexHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func canonicalPath(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = percent(parts[i])
	}
	out := strings.Join(parts, "/")
	if !strings.HasSuffix(out, "/") {
		out += "/"
	}
	return out
}

func canonicalQuery(raw string) string {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return ""
	}
	var pairs []string
	for _, key := range slices.Sorted(keys(values)) {
		list := slices.Clone(values[key])
		slices.Sort(list)
		for _, v := range list {
			pairs = append(pairs, percent(key)+"="+percent(v))
		}
	}
	return strings.Join(pairs, "&")
}

const plainCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~"

func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(plainCharacters, s[i]) >= 0 {
			b.WriteByte(s[i])
		} else {
			b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{s[i]})))
		}
	}
	return b.String()
}
