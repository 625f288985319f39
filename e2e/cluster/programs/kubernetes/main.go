// Command kubernetes is every Kubernetes program of a test cluster in one file: the name that it is
// called by picks the component, as in busybox. One binary is linked once and shares its pages
// between the processes, which saves minutes of building and most of a gigabyte of memory.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	// Without these two the components serve no metrics of their clients and no version.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// components are built on demand: making a command registers its flags, which are global to a process.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name := filepath.Base(os.Args[0])
	if name == "etcd" { // has a main of its own, without cobra
		etcdmain.Main(os.Args)
		return
	}
	component, ok := components[name]
	if !ok {
		names := []string{"etcd"}
		for known := range components {
			names = append(names, known)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "%s is no component: call this program by one of the names %v\n", name, names)
		os.Exit(2)
	}
	os.Exit(cli.Run(component()))
}
