package pool

import (
	"strings"

	"github.com/berth-dev/berth/internal/machine"
)

// noteLimit is what one event may say; what is longer would be cut, and what is cut was not told.
const noteLimit = 900

// tell emits one event, or as many as it takes to name all of a list: what is to be deleted is told completely (decision D19).
func (w *Writer) tell(e machine.Event, items []string) {
	start := e.Message
	for len(items) > 0 {
		n, size := 0, len(start)
		for n < len(items) && (n == 0 || size+len(items[n])+2 <= noteLimit) {
			size += len(items[n]) + 2
			n++
		}
		e.Message = start + strings.Join(items[:n], ", ")
		w.options.Emit(e)
		items = items[n:]
	}
}
