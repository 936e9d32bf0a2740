package sim

import (
	"example.org/daisy/internal/engine"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// nobody is the launcher of a run that has none.
type nobody struct{}

func (nobody) properties() launcher.Properties                 { return launcher.Properties{} }
func (nobody) begins(*coordinator)                             {}
func (nobody) close(*coordinator)                              {}
func (nobody) adopt(*coordinator) []launcher.Worker            { return nil }
func (nobody) held() scheduler.Resources                       { return scheduler.Resources{} }
func (nobody) ended(*worker, launcher.End)                     {}
func (nobody) cancel(*coordinator, []launcher.Worker)          {}
func (nobody) kill(*coordinator, []launcher.Worker)            {}
func (nobody) ask(*coordinator, engine.EffectKind, engine.Ask) {}
func (nobody) submit(co *coordinator, s *engine.Submission) {
	co.world.checks.fail("%d workers are asked for, and there is nobody to start them", s.Count)
}
