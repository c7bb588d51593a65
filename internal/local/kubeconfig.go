package local

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ClusterKubeconfig writes the kubeconfig of a managed cluster into the state directory and returns the file's path. It is the
// one that the control plane's provider keeps in the Secret <cluster>-kubeconfig. namespace may be empty if only one namespace
// has a cluster of that name.
func (e *Environment) ClusterKubeconfig(ctx context.Context, namespace, cluster string) (string, error) {
	client, err := e.client()
	if err != nil {
		return "", err
	}
	if namespace == "" {
		if namespace, err = client.namespaceOf(ctx, cluster); err != nil {
			return "", err
		}
	}
	name := cluster + "-kubeconfig"
	secret, err := client.dynamic.Resource(secretResource).Namespace(namespace).Get(ctx, name, getOptions)
	if err != nil {
		return "", fmt.Errorf("the kubeconfig of cluster %s is not there (yet); it appears once its control plane is being made: %w", cluster, err)
	}
	encoded, _, err := unstructured.NestedString(secret.Object, "data", "value")
	if err != nil {
		return "", err
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(text) == 0 {
		return "", fmt.Errorf("secret %s/%s holds no kubeconfig under the key value", namespace, name)
	}
	dir := e.path("kubeconfigs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := e.path("kubeconfigs", namespace+"-"+cluster+".yaml")
	return path, replaceFile(path, text)
}

func (c *client) namespaceOf(ctx context.Context, cluster string) (string, error) {
	list, err := c.dynamic.Resource(clusterResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("listing clusters: %w", err)
	}
	var found, others []string
	for _, item := range list.Items {
		if item.GetName() == cluster {
			found = append(found, item.GetNamespace())
		} else {
			others = append(others, item.GetName())
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		if len(others) == 0 {
			return "", fmt.Errorf("no cluster is called %q; there are none", cluster)
		}
		return "", fmt.Errorf("no cluster is called %q; there are: %s", cluster, strings.Join(others, ", "))
	default:
		return "", fmt.Errorf("clusters called %q are in the namespaces %s; choose with --namespace", cluster, strings.Join(found, ", "))
	}
}
