/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce of the MPI library itself, as a peer of `lockstep bench allreduce --sizes -`.
 *
 *   mpicc -O3 mpi_allreduce.c -o mpi_allreduce && mpirun -n 2 mpi_allreduce REPEATS [huge]
 *
 * Reads sizes in bytes from rank 0's stdin, a line each, and answers each at once with a line of
 * JSON. In between no rank spins. The buffer is of malloc, as a program's are; with "huge" it asks for
 * huge pages, as Lockstep's memory does. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { SMALL = 65536, CALLS = 50, HUGE_PAGE = 2 << 20, MAX_REPEATS = 1000 };

static int rank, ranks, huge;

static void fail(const char *what) {
  fprintf(stderr, "mpi_allreduce: rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The size that rank 0 has read; 0 at the end. MPI_Bcast would spin. */
static long next_size(void) {
  long bytes = 0;
  if (rank == 0 && scanf("%ld", &bytes) != 1) bytes = 0;
  MPI_Request request;
  MPI_Ibcast(&bytes, 1, MPI_LONG, 0, MPI_COMM_WORLD, &request);
  for (int done = 0;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done) return bytes;
    if (rank > 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
}

static float *buffer_of(long bytes) {
  static void *memory = NULL;
  static long capacity = 0;
  if (bytes > capacity) {
    free(memory);
    capacity = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    memory = aligned_alloc(HUGE_PAGE, capacity);
    if (!memory) fail("no memory");
    if (huge) madvise(memory, capacity, MADV_HUGEPAGE);
  }
  return memory;
}

static void sum(float *values, long count) {
  MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Small integers, so that every order of additions gives the same float. */
static void check(float *values, long count) {
  for (long i = 0; i < count; ++i) values[i] = (float)(i % 97 + rank);
  sum(values, count);
  for (long i = 0; i < count; ++i) {
    if (values[i] != (float)(i % 97 * ranks + ranks * (ranks - 1) / 2)) fail("a sum is wrong");
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int repeats = argc > 1 ? atoi(argv[1]) : 0;
  huge = argc == 3 && strcmp(argv[2], "huge") == 0;
  if (repeats < 1 || repeats > MAX_REPEATS || argc != 2 + huge) {
    fail("usage: mpi_allreduce REPEATS [huge] (1 to 1000)");
  }
  static double seconds[MAX_REPEATS];
  long largest = 0;

  for (long bytes; (bytes = next_size()) > 0;) {
    const long count = bytes / (long)sizeof(float);
    const int calls = bytes < SMALL ? CALLS : 1;
    float *values = buffer_of(bytes);
    if (bytes > largest) check(values, count), largest = bytes;
    for (int i = -1; i < repeats; ++i) { /* the first warms up */
      /* Ones, and on the last rank what makes the sum zero: it stays zero. */
      for (long k = 0; k < count; ++k) values[k] = rank + 1 < ranks ? 1.0F : (float)(1 - ranks);
      MPI_Barrier(MPI_COMM_WORLD);
      const double began = MPI_Wtime();
      for (int call = 0; call < calls; ++call) sum(values, count);
      double slowest = (MPI_Wtime() - began) / calls;
      MPI_Allreduce(MPI_IN_PLACE, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (i >= 0) seconds[i] = slowest;
      for (long k = 0; k < count; ++k) {
        if (values[k] != 0.0F) fail("a sum is not zero");
      }
    }
    qsort(seconds, repeats, sizeof *seconds, compare);
    if (rank == 0) {
      printf("{\"peer\": \"mpi\", \"ranks\": %d, \"bytes\": %ld, \"calls\": %d, \"seconds\": %.9g}\n",
             ranks, bytes, calls, seconds[repeats / 2]);
      fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
