package hcs

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

func (c *cloud) groupView(g *serverGroup) map[string]any {
	members := []string{}
	for _, s := range c.members(g.id) {
		members = append(members, s.id)
	}
	return map[string]any{"id": g.id, "name": g.name, "policies": []string{g.policy}, "members": members, "metadata": map[string]any{}}
}

func (c *cloud) createGroup(r *request) (int, any, *refusal) {
	var body struct {
		Group struct {
			Name     string   `json:"name"`
			Policies []string `json:"policies"`
		} `json:"server_group"`
	}
	if refused := r.decode(&body); refused != nil {
		return 0, nil, refused
	}
	known := []string{"anti-affinity", "soft-anti-affinity"}
	if body.Group.Name == "" || len(body.Group.Policies) != 1 || !slices.Contains(known, body.Group.Policies[0]) {
		return 0, nil, refuse(http.StatusBadRequest, "Ecs.0005", "a server group has a name and one policy of %s", strings.Join(known, ", "))
	}
	g := &serverGroup{id: newID(), name: body.Group.Name, policy: body.Group.Policies[0]}
	c.affinity[g.id] = g
	c.touch()
	return http.StatusOK, map[string]any{"server_group": c.groupView(g)}, nil
}

func (c *cloud) listGroups(*request) (int, any, *refusal) {
	list := []any{}
	for _, id := range slices.Sorted(maps.Keys(c.affinity)) {
		list = append(list, c.groupView(c.affinity[id]))
	}
	return http.StatusOK, map[string]any{"server_groups": list}, nil
}

func (c *cloud) showGroup(r *request) (int, any, *refusal) {
	g := c.affinity[r.PathValue("id")]
	if g == nil {
		return 0, nil, notFound("Instance group %s could not be found.", r.PathValue("id"))
	}
	return http.StatusOK, map[string]any{"server_group": c.groupView(g)}, nil
}

func (c *cloud) deleteGroup(r *request) (int, any, *refusal) {
	g := c.affinity[r.PathValue("id")]
	if g == nil {
		return 0, nil, notFound("Instance group %s could not be found.", r.PathValue("id"))
	}
	if len(c.members(g.id)) > 0 {
		return 0, nil, refuse(http.StatusConflict, "Ecs.0014", "server group %s has members", g.name)
	}
	delete(c.affinity, g.id)
	c.touch()
	return http.StatusNoContent, nil, nil
}
