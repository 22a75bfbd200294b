/* SPDX-License-Identifier: Apache-2.0 */
/* The all-reduce of `lockstep bench allreduce` with nothing around it, to see what the library costs
 * and what the machine allows.
 *
 *   cc -O3 -march=native -pthread bare_sum.c -o bare_sum && bare_sum RANKS REPEATS [private]
 *
 * Threads that see each other's memory meet, each adds up its slice of all arrays and stores the sum
 * to all of them, and they meet again: two looks at a cache line and the additions. No library is
 * called between the two readings of the clock.
 *
 * With "private" each thread adds up the same slice of arrays that it alone has written, and none
 * waits for another: what the memory of one rank takes for the additions if nothing need be shared.
 *
 * Reads sizes in bytes from stdin, a line each, and answers each at once with a line of JSON. In
 * between no thread spins. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { SMALL = 65536, CALLS = 50, HUGE_PAGE = 2 << 20, MAX_REPEATS = 1000, MAX_RANKS = 16 };
enum { SHIFT = 136256 };                /* bytes between two arrays beside their own: no power of two */
enum { AHEAD = 64, AHEAD_UP_TO = 25 << 20 }; /* floats; bytes of an array that lies in caches */

/* Two lines of 64 bytes: the prefetcher fetches them in pairs. */
static struct {
  _Alignas(128) atomic_ulong round;
} came[MAX_RANKS];

static int ranks, repeats;
static long bytes; /* of the size that is asked for; 0 at the end */
static int alone; /* whether each rank has arrays of its own */
static float *arrays[MAX_RANKS][MAX_RANKS]; /* as a rank sees them, by whose they are */
static double seconds[MAX_RANKS][MAX_REPEATS];
static pthread_barrier_t barrier;

static void fail(const char *what) {
  fprintf(stderr, "bare_sum: %s\n", what);
  exit(1);
}

static void meet(int rank, unsigned long round) {
  atomic_store_explicit(&came[rank].round, round, memory_order_release);
  for (int peer = 0; peer < ranks; ++peer) {
    while (atomic_load_explicit(&came[peer].round, memory_order_acquire) < round) {
    }
  }
}

typedef float Line __attribute__((vector_size(64), may_alias));

static void add_line(float *const *array, long at) {
  Line sum = *(const Line *)(array[0] + at);
  for (int rank = 1; rank < ranks; ++rank) sum += *(const Line *)(array[rank] + at);
  for (int rank = 0; rank < ranks; ++rank) *(Line *)(array[rank] + at) = sum;
}

/* Downward or upward: a core fetches lines beyond those it comes to, which another one works on. */
static void add_slice(int rank, long begin, long end) {
  float *const *array = arrays[rank];
  const int fetch = !alone && bytes > SMALL / 2 && bytes <= AHEAD_UP_TO;
  const long step = rank % 2 == 0 ? -16 : 16;
  for (long left = end - begin, at = step < 0 ? end - 16 : begin; left > 0; left -= 16, at += step) {
    if (fetch && left > AHEAD) {
      const long there = at + step * (AHEAD / 16);
      for (int peer = 0; peer < ranks; ++peer) __builtin_prefetch(array[peer] + there, 1);
    }
    add_line(array, at);
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void fill(float *array, long begin, long end, float value) {
  for (long k = begin; k < end; ++k) array[k] = value;
}

static void sample(int rank, unsigned long *round) {
  const long count = bytes / (long)sizeof(float), lines = (count + 15) / 16;
  const long begin = lines * rank / ranks * 16, end = lines * (rank + 1) / ranks * 16;
  const int calls = bytes < SMALL ? CALLS : 1;
  for (int i = -1; i < repeats; ++i) { /* the first warms up */
    /* Ones, and on the last rank what makes the sum zero: it stays zero. */
    for (int peer = 0; peer < ranks; ++peer) {
      const float value = peer + 1 < ranks ? 1.0F : (float)(1 - ranks);
      if (alone) fill(arrays[rank][peer], begin, end, value);
      else if (peer == rank) fill(arrays[rank][peer], 0, lines * 16, value);
    }
    meet(rank, ++*round);
    const double began = now();
    for (int call = 0; call < calls; ++call) {
      if (!alone) meet(rank, ++*round);
      add_slice(rank, begin, end);
      if (!alone) meet(rank, ++*round);
    }
    if (i >= 0) seconds[rank][i] = (now() - began) / calls;
    for (long k = alone ? begin : 0; k < (alone ? end : lines * 16); ++k) {
      if (arrays[rank][rank][k] != 0.0F) fail("a sum is not zero");
    }
    meet(rank, ++*round);
  }
}

static void *serve(void *argument) {
  const int rank = (int)(long)argument;
  for (unsigned long round = 0;;) {
    pthread_barrier_wait(&barrier);
    if (bytes == 0) return NULL;
    sample(rank, &round);
    pthread_barrier_wait(&barrier);
  }
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void allocate(void) {
  const size_t stride = ((size_t)bytes + 4095) / 4096 * 4096 + SHIFT;
  const size_t all = (stride * (size_t)ranks + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  char *memory = NULL; /* kept: sizes are few */
  for (int rank = 0; rank < ranks; ++rank) {
    if (alone || rank == 0) {
      memory = aligned_alloc(HUGE_PAGE, all);
      if (!memory) fail("no memory");
      madvise(memory, all, MADV_HUGEPAGE);
    }
    for (int peer = 0; peer < ranks; ++peer) arrays[rank][peer] = (float *)(memory + stride * (size_t)peer);
  }
}

int main(int argc, char **argv) {
  alone = argc == 4 && strcmp(argv[3], "private") == 0;
  ranks = argc == 3 + alone ? atoi(argv[1]) : 0;
  repeats = argc == 3 + alone ? atoi(argv[2]) : 0;
  if (ranks < 1 || ranks > MAX_RANKS || repeats < 1 || repeats > MAX_REPEATS) {
    fail("usage: bare_sum RANKS REPEATS [private] (1 to 16, 1 to 1000)");
  }
  pthread_barrier_init(&barrier, NULL, (unsigned)ranks + 1);
  pthread_t threads[MAX_RANKS];
  for (long rank = 0; rank < ranks; ++rank) {
    if (pthread_create(&threads[rank], NULL, serve, (void *)rank)) fail("no thread");
  }
  for (long largest = 0; scanf("%ld", &bytes) == 1 && bytes > 0; fflush(stdout)) {
    if (bytes > largest) allocate(), largest = bytes;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int rank = 1; rank < ranks; ++rank) {
      for (int i = 0; i < repeats; ++i) {
        if (seconds[rank][i] > seconds[0][i]) seconds[0][i] = seconds[rank][i];
      }
    }
    qsort(seconds[0], (size_t)repeats, sizeof(double), compare);
    printf("{\"peer\": \"%s\", \"ranks\": %d, \"bytes\": %ld, \"calls\": %d, \"seconds\": %.9g}\n",
           alone ? "private" : "bare", ranks, bytes, bytes < SMALL ? CALLS : 1, seconds[0][repeats / 2]);
  }
  bytes = 0;
  pthread_barrier_wait(&barrier);
  for (int rank = 0; rank < ranks; ++rank) pthread_join(threads[rank], NULL);
  return 0;
}
