// Threads of C and of Go at one pthread mutex and condition.
package main

/*
#include <pthread.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static long n, turn;
static void add(void) { pthread_mutex_lock(&m); n++; pthread_mutex_unlock(&m); }
static void ping(int me) {
  pthread_mutex_lock(&m);
  while (turn % 2 != me) pthread_cond_wait(&c, &m);
  turn++; pthread_cond_broadcast(&c);
  pthread_mutex_unlock(&m);
}
static long turns(void) { return turn; }
static long get(void) { pthread_rwlock_rdlock(&l); long r = n; pthread_rwlock_unlock(&l); return r; }
*/
import "C"

import (
	"fmt"
	"sync"
)

func main() {
	var w sync.WaitGroup
	for g := 0; g < 64; g++ {
		w.Add(1)
		go func() {
			defer w.Done()
			for i := 0; i < 2000; i++ {
				C.add()
				C.get()
			}
		}()
	}
	for g := 0; g < 2; g++ {
		w.Add(1)
		go func(g int) {
			defer w.Done()
			for i := 0; i < 500; i++ {
				C.ping(C.int(g))
			}
		}(g)
	}
	w.Wait()
	fmt.Println(C.get(), C.turns())
}
