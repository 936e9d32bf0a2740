package local_test

import (
	"testing"

	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
	"example.org/daisy/launcher/local"
)

func TestMain(m *testing.M) { launchertest.Main(m) }

func TestTheLocalLauncherConforms(t *testing.T) {
	launchertest.Run(t, func(*testing.T) launcher.Launcher {
		return local.New(local.Config{GPUs: []string{"0", "1", "GPU-5e2a"}})
	}, launchertest.Options{GPUs: 3})
}
