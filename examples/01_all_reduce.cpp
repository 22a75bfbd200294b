// SPDX-License-Identifier: Apache-2.0
// Every rank gives a number; all of them get the sum.
//
//   scripts/mpirun-local -n 3 build/release/bin/01_all_reduce
//
//   rank 0 of 3: 1 + … + 3 = 6
//   rank 1 of 3: 1 + … + 3 = 6
//   rank 2 of 3: 1 + … + 3 = 6
#include <cstdio>

#include "lockstep/lockstep.h"

namespace ls = lockstep;

int main() {
  ls::run_job({}, [](ls::ProcessGroup& group) {
    const int rank = group.rank();
    const int size = group.size();

    // Memory that the communication thread may use until the operation is done.
    const ls::Tensor number(ls::Device{}, {1}, ls::DType::f32);
    *number.as<float>() = static_cast<float>(rank + 1);

    // Starts and returns at once; the same order of operations on every rank.
    const ls::Work work = group.world().all_reduce(number, ls::ReduceOp::sum);
    work.wait();  // throws if a rank is lost, or late beyond the deadline

    std::printf("rank %d of %d: 1 + … + %d = %g\n", rank, size, size,
                static_cast<double>(*number.as<float>()));
    return ls::Outcome::finished;  // all ranks leave together, with one exit status
  });
}
