// Command kube-router is kube-router with what enforces NetworkPolicies, and nothing else of it: no routes, no Services.
package main

import (
	"context"
	"flag"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func main() {
	config := options.NewKubeRouterConfig()
	config.AddFlags(pflag.CommandLine)
	pflag.Parse()
	klog.InitFlags(nil)
	if err := flag.Set("v", config.VLevel); err != nil {
		klog.Exit(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, config); err != nil {
		klog.Exit(err)
	}
}

func run(ctx context.Context, config *options.KubeRouterConfig) error {
	restConfig, err := clientcmd.BuildConfigFromFlags(config.Master, config.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return err
	}
	// The kubelet says who the node is, and the controller does not wait for that.
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, config.HostnameOverride, metav1.GetOptions{})
		return err == nil && len(node.Status.Addresses) > 0, nil
	})
	if err != nil {
		return err
	}

	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	iptables, ipsets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, namespaces, &sync.Mutex{}, iptables, ipsets)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: controller.PodEventHandler, namespaces: controller.NamespaceEventHandler,
		policies: controller.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}

	// It begins each round with one, and waits until that is taken: a round, which runs thirty programs, is for all that has
	// changed in a while.
	heartbeats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range heartbeats {
			time.Sleep(500 * time.Millisecond)
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(heartbeats, ctx.Done(), &running)
	running.Wait()
	return nil
}
