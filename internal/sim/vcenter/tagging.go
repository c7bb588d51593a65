package vcenter

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vapi/rest"
	vapi "github.com/vmware/govmomi/vapi/simulator"
	"github.com/vmware/govmomi/vapi/tags"
)

const taggingPath = rest.Path + "/com/vmware/cis/tagging"

// tagRules answers an attachment of a tag that vCenter refuses and vcsim does not: to a kind of object that the category does not
// allow, or beside another tag of a category that allows one per object. false leaves the request to vcsim.
func tagRules(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
	id, isAttach := strings.CutPrefix(r.URL.Path, taggingPath+"/tag-association/id:")
	if !isAttach || r.Method != http.MethodPost || r.URL.Query().Get("~action") != "attach" {
		return false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var request struct {
		Object struct {
			Type  string `json:"type"`
			Value string `json:"id"`
		} `json:"object_id"`
	}
	var tag, other tags.Tag
	var category tags.Category
	if json.Unmarshal(body, &request) != nil || !ask(r, next, http.MethodGet, "/tag/id:"+id, nil, &tag) ||
		!ask(r, next, http.MethodGet, "/category/id:"+tag.CategoryID, nil, &category) {
		return false
	}
	if len(category.AssociableTypes) > 0 && !slices.Contains(category.AssociableTypes, request.Object.Type) {
		vapi.BadRequest(w, "com.vmware.vapi.std.errors.invalid_argument")
		return true
	}
	var attached []string
	if category.Cardinality != "SINGLE" || !ask(r, next, http.MethodPost, "/tag-association?~action=list-attached-tags", body, &attached) {
		return false
	}
	for _, has := range attached {
		if has != id && ask(r, next, http.MethodGet, "/tag/id:"+has, nil, &other) && other.CategoryID == tag.CategoryID {
			vapi.BadRequest(w, "com.vmware.vapi.std.errors.invalid_argument")
			return true
		}
	}
	return false
}

// ask asks vcsim in the session of a request.
func ask(of *http.Request, next http.Handler, method, path string, body []byte, into any) bool {
	u, err := url.Parse(taggingPath + path)
	if err != nil {
		return false
	}
	question := of.Clone(of.Context())
	question.Method, question.URL, question.RequestURI = method, u, u.String()
	question.Body, question.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	recorder := httptest.NewRecorder()
	next.ServeHTTP(recorder, question)
	answer := struct {
		Value any `json:"value"`
	}{into}
	return recorder.Code == http.StatusOK && json.Unmarshal(recorder.Body.Bytes(), &answer) == nil
}
