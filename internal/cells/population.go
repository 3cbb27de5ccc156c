package main

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// population describes sessions. Real sessions differ much: a few users have many sessions, and
// a few sessions make most of the events. Both follow a log-normal distribution here.
type population struct {
	Seed            uint64
	Sessions        int
	SessionsPerUser float64 // mean
	EventsPerMean   float64 // mean number of events of a session
}

// Spread of the distributions: 1% of the users have more than about 10 times the median number
// of sessions, and 1% of the sessions more than about 30 times the median number of events.
const (
	userSpread    = 1.0
	sessionSpread = 1.5
)

// bucketLoad is what each bucket has.
type bucketLoad struct {
	Sessions []float64 // number
	Events   []float64 // number of events of these sessions; also their share of the traffic
}

// bySession and byUser return the load of the buckets when the key is the session's id, and when
// it is the user's. Equal populations have equal loads.
func (p population) bySession() bucketLoad { return p.load(false) }

// byUser is described at bySession.
func (p population) byUser() bucketLoad { return p.load(true) }

func (p population) load(byUser bool) bucketLoad {
	random := rand.New(rand.NewPCG(p.Seed, 1))
	out := bucketLoad{make([]float64, buckets), make([]float64, buckets)}
	var key [16]byte
	bucket, ofUser := 0, 0
	for range p.Sessions {
		if ofUser == 0 {
			ofUser = max(1, int(math.Round(logNormal(random, p.SessionsPerUser, userSpread))))
			bucket = randomBucket(random, &key)
		}
		ofUser--
		b := bucket
		if !byUser {
			b = randomBucket(random, &key)
		}
		out.Sessions[b]++
		out.Events[b] += logNormal(random, p.EventsPerMean, sessionSpread)
	}
	return out
}

// randomBucket makes a random id and returns its bucket.
func randomBucket(random *rand.Rand, id *[16]byte) int {
	binary.LittleEndian.PutUint64(id[:8], random.Uint64())
	binary.LittleEndian.PutUint64(id[8:], random.Uint64())
	return bucket(id[:])
}

// logNormal returns a random number with a mean and a spread.
func logNormal(random *rand.Rand, mean, spread float64) float64 {
	return mean * math.Exp(spread*random.NormFloat64()-spread*spread/2)
}
