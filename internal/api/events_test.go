package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tells answers a request for events with a stream, which then does what end says.
func tells(text string, end func()) func(k Key, w http.ResponseWriter, r *http.Request) {
	return func(k Key, w http.ResponseWriter, r *http.Request) {
		w.Header().Set(HeaderProof, k.ProveAnswer(r, http.StatusOK, nil))
		_, _ = w.Write([]byte(text))
		_ = http.NewResponseController(w).Flush()
		end()
	}
}

func eventText(n int) string {
	return fmt.Sprintf("id: 1-%d\nevent: notice\ndata: {\"version\":1,\"id\":\"1-%d\",\"event\":\"notice\",\"message\":\"m\"}\n\n", n, n)
}

func TestEventsAreReadInTheirOrderUntilTheStreamEnds(t *testing.T) {
	asked := ""
	c := coordinatorThat(t, func(k Key, w http.ResponseWriter, r *http.Request) {
		asked = fmt.Sprintf("%v %v %v", k.CheckRequest(r, nil), r.URL, r.Header.Get(HeaderLastEvent))
		tells(eventText(7)+": \n\n"+eventText(8), func() {})(k, w, r)
	})
	var ids []string
	each := func(e *Event) error { ids = append(ids, e.ID); return nil }
	if err := c.Events(t.Context(), url.Values{"all": {"1"}}, "1-6", each); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"1-7", "1-8"}, ids); diff != "" || asked != "true /v1/events?all=1 1-6" {
		t.Errorf("asked %s: %s", asked, diff)
	}
	enough := errors.New("enough")
	if err := c.Events(t.Context(), nil, "", func(*Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("who has enough gets %v", err)
	}
}

func TestAStreamThatEndsTooEarlyIsToldFromOneThatIsOver(t *testing.T) {
	defer func(was time.Duration) { silentAfter = was }(silentAfter)
	silentAfter = 200 * time.Millisecond
	over := make(chan struct{})
	for name, c := range map[string]struct {
		end  func()
		want string
	}{
		"cut off": {func() { panic(http.ErrAbortHandler) }, "the connection to the coordinator has broken"},
		"silent":  {func() { <-over }, "nothing has come for 200ms"},
	} {
		n := 0
		err := coordinatorThat(t, tells(eventText(1), c.end)).Events(t.Context(), nil, "", func(*Event) error { n++; return nil })
		var broken *BrokenStreamError
		if !errors.As(err, &broken) || n != 1 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d events and %v", name, n, err)
		}
	}
	close(over)
}

func TestEventsOfStrangersAreNotBelieved(t *testing.T) {
	for name, answer := range map[string]func(k Key, w http.ResponseWriter, r *http.Request){
		"no proof": func(_ Key, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(eventText(1))) },
		"of who does not know the secret": func(k Key, w http.ResponseWriter, r *http.Request) {
			tells(eventText(1), func() {})(Key{Run: k.Run, Secret: "guessed"}, w, r)
		},
		"a refusal without proof": func(_ Key, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"error":"believe me"}`))
		},
	} {
		err := coordinatorThat(t, answer).Events(t.Context(), nil, "", func(*Event) error { t.Errorf("%s: an event is told", name); return nil })
		var none *NoAnswerError
		if !errors.As(err, &none) || !strings.Contains(err.Error(), "somebody else listens") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARefusalToTellEventsHasTheWordsOfTheCoordinator(t *testing.T) {
	c := coordinatorThat(t, func(k Key, w http.ResponseWriter, r *http.Request) {
		prove(k, w, r, http.StatusServiceUnavailable, Error{Code: "busy", Message: "64 look on already"})
	})
	var refused *RefusedError
	if err := c.Events(t.Context(), nil, "", nil); !errors.As(err, &refused) || refused.Code != "busy" || refused.Text != "64 look on already" {
		t.Error(err)
	}
}

func TestEventsOfAnotherVersionAreRefused(t *testing.T) {
	c := coordinatorThat(t, tells("data: {\"version\":2}\n\n", func() {}))
	if err := c.Events(t.Context(), nil, "", func(*Event) error { return nil }); err == nil || !strings.Contains(err.Error(), "use the daisy-submit that started the run") {
		t.Error(err)
	}
}

func TestTheDocumentationHasEveryWordForAnEvent(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "| event | what happened |\n")
	section, _, _ = strings.Cut(section, "\n\n")
	for _, word := range []string{EventBlock, EventWorkerJoined, EventWorkerEnded, EventTaskEnded, EventNotice, EventSet, EventExcluded, EventIncluded, EventRunEnded, EventMissed, EventCut} {
		if !strings.Contains(section, "`"+word+"`") {
			t.Errorf("docs/cli.md does not explain the event %s", word)
		}
	}
}
