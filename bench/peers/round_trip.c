/* SPDX-License-Identifier: Apache-2.0 */
/* How far apart two cores are: one cache line's round trip between them.
 *
 *   cc -O2 -pthread round_trip.c -o round_trip
 *
 * Answers each line on stdin with a line: the median of 20 batches in µs. A virtual machine's cores
 * may share a cache now and not a second later; shared memory is 2-5 times as fast when they do. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 20, TRIPS = 100, CORES = 2 };

static _Alignas(128) atomic_int line;
static int cores[CORES];

static void fail(const char *what) {
  fprintf(stderr, "round_trip: %s\n", what);
  exit(1);
}

static void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) fail("cannot choose a core");
}

static void find_cores(void) {
  cpu_set_t set;
  int found = 0;
  if (sched_getaffinity(0, sizeof set, &set) != 0) fail("no affinity");
  for (int core = 0; core < CPU_SETSIZE && found < CORES; ++core) {
    if (CPU_ISSET(core, &set)) cores[found++] = core;
  }
  if (found < CORES) fail("needs two cores");
}

static void *answer(void *unused) {
  stay_on(cores[1]);
  for (int i = 0; i < BATCHES * TRIPS; ++i) {
    while (atomic_load_explicit(&line, memory_order_acquire) != 2 * i + 1) {
    }
    atomic_store_explicit(&line, 2 * i + 2, memory_order_release);
  }
  return unused;
}

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(void) {
  char request[64];
  double batches[BATCHES];
  find_cores();
  stay_on(cores[0]);
  while (fgets(request, sizeof request, stdin)) {
    pthread_t other;
    atomic_store(&line, 0);
    if (pthread_create(&other, NULL, answer, NULL) != 0) fail("no thread");
    for (int batch = 0, i = 0; batch < BATCHES; ++batch) {
      const double began = now_us();
      for (int trip = 0; trip < TRIPS; ++trip, ++i) {
        atomic_store_explicit(&line, 2 * i + 1, memory_order_release);
        while (atomic_load_explicit(&line, memory_order_acquire) != 2 * i + 2) {
        }
      }
      batches[batch] = (now_us() - began) / TRIPS;
    }
    pthread_join(other, NULL);
    qsort(batches, BATCHES, sizeof *batches, compare);
    printf("%.4f\n", batches[BATCHES / 2]);
    fflush(stdout);
  }
  return 0;
}
