package disk

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/internal/chance"
)

func TestMain(m *testing.M) { chance.Main(m) }

// shelf is a platform with one address, and the truth about it.
type shelf struct {
	there  bool
	id     string
	marked bool
	holder string
	// used: somebody has written to the disk, so it must never be taken for blank or be deleted unasked.
	used bool
	made int
	// busy is the operation that runs: its effect comes at its end.
	busy   string
	effect func()
	fails  bool
}

// life is one disk: its record, the shelf, and whether somebody asked for its data to go.
type life struct {
	clock   time.Time
	durable Record
	world   *shelf
	serial  int
	// wiped: since the last creation a reclaim was asked for, so the data may go.
	wiped bool
	// lostData: data went by accident. Until a reclaim was asked for nothing may be made in its place.
	lostData bool
	// blind: record and data are both lost; nothing is left that knows.
	blind bool
}

const there = "shared/w-1/data"

// drive does what the pool's writer does, with questions that fail, replies that are lost and a death at any instant.
func (l *life) drive(t *rapid.T, want Want) {
	rec := l.durable
	var seen Observation
	for range 24 {
		next, act := Next(rec, want, seen, l.clock)
		if rapid.IntRange(0, 14).Draw(t, "dies") == 0 {
			return
		}
		switch act {
		case Plan, Poll, Look, Scan:
			if rapid.IntRange(0, 9).Draw(t, "no answer") == 0 {
				return // nothing is done on a fact that could not be had
			}
			l.ask(act, next, &seen)
		case Create:
			l.durable = next // written before the act
			l.create(t, &next, &seen)
		case Delete:
			l.durable = next
			l.remove(t, want, &next, &seen)
		case Idle, Wait, Stop, Ready, Gone:
			if next.Identity != "" && next.Phase != Reclaimed && l.durable.Identity == "" && !l.world.marked {
				t.Fatalf("VS-D14: takes what nothing says is its: %+v, on the shelf is %+v", next, *l.world)
			}
			l.durable = next
			if act == Ready && (next.Identity != l.world.id || !l.world.there) && next.Phase != Attached && seen.Looked {
				t.Fatalf("ready with %+v, and on the shelf is %+v", next, *l.world)
			}
			return
		}
		rec = next
	}
	t.Fatalf("does not settle: %+v for %+v", rec, want)
}

func (l *life) ask(act Act, rec Record, seen *Observation) {
	w := l.world
	switch act {
	case Plan:
		seen.Planned = there
	case Poll:
		switch {
		case rec.Operation == w.busy:
			seen.Progress = Running
		case w.fails:
			seen.Progress, seen.Failure = Failed, "the platform says no"
		default:
			seen.Progress = Forgotten
		}
		seen.Looked = false
	case Look:
		seen.Looked, seen.Found, seen.Identity, seen.Marked, seen.SizeGiB = true, w.there, w.id, w.marked, 1
		if !w.there {
			seen.Identity, seen.Marked = "", false
		}
	case Scan:
		seen.Scanned, seen.Holder = true, w.holder
	case Create, Delete, Idle, Wait, Stop, Ready, Gone:
	}
}

func (l *life) create(t *rapid.T, rec *Record, seen *Observation) {
	w := l.world
	switch {
	case rec.Phase != Creating || rec.Identity != "" || rec.Volume == "":
		t.Fatalf("creates with record %+v", *rec)
	case l.lostData && !l.blind:
		t.Fatalf("hazard H9: makes a blank disk in place of a lost one: %+v", *rec)
	}
	seen.Looked, seen.Scanned, seen.Progress = false, false, NotAsked
	if w.there {
		seen.Exists = true // a real platform does not overwrite
		return
	}
	l.wiped = false
	make := func() {
		if !w.there {
			w.made++
			*w = shelf{there: true, id: fmt.Sprintf("made-%d", w.made), marked: true, made: w.made}
		}
	}
	if rapid.Bool().Draw(t, "takes its time") {
		l.begin(t, rec, make)
		return
	}
	make()
	seen.Created = true
}

// begin starts an operation; that it has, may stay unknown.
func (l *life) begin(t *rapid.T, rec *Record, effect func()) {
	l.serial++
	l.world.busy, l.world.effect, l.world.fails = fmt.Sprintf("op-%d", l.serial), effect, false
	rec.Operation = l.world.busy
	if rapid.IntRange(0, 4).Draw(t, "reply is lost") == 0 {
		rec.Operation = ""
	}
}

func (l *life) remove(t *rapid.T, want Want, rec *Record, seen *Observation) {
	w := l.world
	switch {
	case want.Purpose != Reclaim || rec.Phase != Reclaiming:
		t.Fatalf("deletes with record %+v for %+v", *rec, want)
	case rec.OwnerMark != "" || rec.OwnerName != "":
		t.Fatalf("deletes a disk that is owned: %+v", *rec)
	case !seen.Looked || !seen.Scanned:
		t.Fatalf("hazard H6: deletes without having looked and scanned: %+v", *seen)
	case w.holder != "":
		t.Fatalf("hazard H6: deletes a disk that %s has", w.holder)
	case rec.Identity != "" && w.id != rec.Identity, rec.Identity == "" && !w.marked:
		t.Fatalf("hazard H3: deletes %+v, on record is %+v", *w, *rec)
	}
	seen.Looked, seen.Scanned, seen.Progress = false, false, NotAsked
	gone := func() {
		if w.holder == "" { // what is attached cannot be deleted
			w.there, w.used = false, false
		}
	}
	if rapid.Bool().Draw(t, "takes its time") {
		l.begin(t, rec, gone)
		return
	}
	gone()
}

func (l *life) want(t *rapid.T, who string) Want {
	return Want{Purpose: Use, SizeGiB: 1, OwnerName: "m-" + who, OwnerMark: who}
}

// attach is the server's part: it starts with a disk that was handed out to it.
func (l *life) attach(t *rapid.T) {
	w, r := l.world, l.durable
	if !w.there || r.OwnerMark == "" || r.Identity != w.id || w.holder != "" || w.busy != "" || r.Phase == Error {
		t.Skip("nothing to attach")
	}
	next, err := Attach(r, r.OwnerName, r.OwnerMark, r.Volume, w.id, nil, l.clock)
	if err != nil {
		t.Fatal(err)
	}
	w.holder, w.used = r.OwnerName, true
	l.wiped = false
	if rapid.Bool().Draw(t, "it is written down") {
		l.durable = next
	}
}

func (l *life) release(t *rapid.T) {
	w := l.world
	if w.holder != "" && w.holder != l.durable.OwnerName {
		t.Skip("a stranger has it")
	}
	w.holder = ""
	l.durable = Release(l.durable, l.clock)
}

// vanish loses the data behind everybody's back.
func (l *life) vanish(*rapid.T) {
	w := l.world
	if w.there && w.used && !l.wiped {
		l.lostData = true
		l.blind = l.durable.Identity == ""
	}
	w.there, w.holder, w.used = false, "", false
}

// forget loses the record. The mark beside the disk is all that is left.
func (l *life) forget(t *rapid.T) {
	if l.world.busy != "" || l.world.holder != "" {
		t.Skip("a machine would say that it has it")
	}
	l.durable = Record{HostName: "w-1", Name: "data"}
	l.blind = l.blind || l.lostData
}

func (l *life) check(t *rapid.T) {
	chance.Step()
	r, w := l.durable, l.world
	if r.Phase == Error && (r.LastError == "" || r.RetryAfter == nil) {
		t.Fatalf("an error without a sentence or a pause: %+v", r)
	}
	if r.Phase == Reclaimed && w.there && w.used && r.Identity == w.id && !l.wiped {
		t.Fatalf("a tombstone on a disk with data: %+v", r)
	}
	if w.used && !w.there {
		t.Fatalf("the test lost count of the data: %+v", *w)
	}
}

// TestDiskLives: promise 2, promise 5, hazard H3, hazard H6, hazard H9 and hazard H16 over random lives of a disk: two owners; questions without an
// answer, replies that are lost, operations that run, fail and are forgotten, a process that dies anywhere; disks that vanish,
// are swapped, are put there by strangers or taken by them; records that are lost; deletions taken back.
func TestDiskLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &life{clock: now, durable: Record{HostName: "w-1", Name: "data"}, world: &shelf{}}
		t.Repeat(map[string]func(*rapid.T){
			"":        l.check,
			"use a":   func(t *rapid.T) { l.drive(t, l.want(t, "a")) },
			"use a 2": func(t *rapid.T) { l.drive(t, l.want(t, "a")) },
			"use b":   func(t *rapid.T) { l.drive(t, l.want(t, "b")) },
			"reclaim": func(t *rapid.T) {
				if l.durable.OwnerMark != "" {
					// The slot has a holder: nobody may ask. If somebody does, nothing comes of it.
					before := *l.world
					l.drive(t, Want{Purpose: Reclaim})
					if before.there != l.world.there {
						t.Fatalf("deleted under its owner: %+v", l.durable)
					}
					return
				}
				l.wiped, l.lostData, l.blind = true, false, false
				l.drive(t, Want{Purpose: Reclaim})
			},
			"keep": func(t *rapid.T) {
				there, was := l.world.there, l.durable.Phase
				l.drive(t, Want{Purpose: Keep})
				if r := l.durable; was == Error && r.Phase == Available && (!there || r.Identity != "" && r.Identity != l.world.id) {
					t.Fatalf("VS-D25: said to be repaired: %+v, on the shelf is %+v", r, *l.world)
				}
				if l.world.there != there {
					t.Fatalf("keeping changed the shelf: %+v", *l.world)
				}
			},
			"operation ends": func(t *rapid.T) {
				w := l.world
				if w.busy == "" {
					t.Skip("none runs")
				}
				effect := w.effect
				w.busy, w.effect = "", nil
				if w.fails = rapid.Bool().Draw(t, "badly"); !w.fails || rapid.Bool().Draw(t, "after its effect") {
					fails := w.fails
					effect()
					w.fails = fails
				}
			},
			"attach":  l.attach,
			"release": l.release,
			"vanish":  l.vanish,
			"forget":  l.forget,
			"swap": func(t *rapid.T) {
				if !l.world.there {
					t.Skip("nothing is there")
				}
				l.vanish(t)
				l.world.made++
				l.world.there, l.world.id = true, fmt.Sprintf("swapped-%d", l.world.made)
			},
			"stranger's": func(t *rapid.T) {
				if l.world.there || l.world.busy != "" {
					t.Skip("something is there")
				}
				*l.world = shelf{there: true, id: "strange", made: l.world.made}
			},
			"stranger takes it": func(t *rapid.T) {
				if !l.world.there || l.world.holder != "" {
					t.Skip("cannot")
				}
				l.world.holder = "stranger"
			},
			"stranger lets go": func(t *rapid.T) {
				if l.world.holder != "stranger" {
					t.Skip("has none")
				}
				l.world.holder = ""
			},
			"wait": func(t *rapid.T) {
				l.clock = l.clock.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
			},
		})
	})
}
