// SPDX-License-Identifier: Apache-2.0
// What every transport must do, with sizes that nothing divides.
#include "tests/collectives/conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <thread>

#include "core/kernels.h"
#include "lockstep/collectives/prepared_reduction.h"
#include "tests/support/on_device.h"
#include "tests/support/tree_sum.h"

namespace lockstep {
namespace {

using testing_support::Conformance;
using testing_support::on_device;
using testing_support::on_host;
using testing_support::put;

// Empty, tiny, just over what one exchange carries, odd, several segments and pieces.
constexpr std::int64_t kSizes[] = {0, 1, 7, 16, 1023, 1025, 4097, 65'537, 300'003, 3'000'001};

// A value that depends on rank and position, over several decades.
float value(int rank, std::int64_t i) {
  const float sign = (rank + i) % 3 == 0 ? -1.0F : 1.0F;
  return sign * static_cast<float>(i % 1013 + rank + 1) * (rank % 2 == 0 ? 1e-4F : 1e3F);
}

float rank_ordered_sum(int ranks, std::int64_t i) {
  float sum = value(0, i);
  for (int rank = 1; rank < ranks; ++rank) sum += value(rank, i);
  return sum;
}

Tensor host_values(std::int64_t size, int rank) {
  const Tensor tensor(Device{}, {size}, DType::f32);
  for (std::int64_t i = 0; i < size; ++i) tensor.as<float>()[i] = value(rank, i);
  return tensor;
}

Tensor filled(Tensor tensor, int rank) {
  put(host_values(tensor.size(), rank), tensor);
  return tensor;
}

// Memory that does not come from the group.
Tensor private_values(const Communicator& group, std::int64_t size) {
  return on_device(group.device(), host_values(size, group.rank()));
}

std::int64_t differences(const Tensor& tensor, const std::function<float(std::int64_t)>& want) {
  const Tensor got = on_host(tensor);
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const float wanted = want(i);
    different += std::memcmp(got.as<float>() + i, &wanted, sizeof wanted) != 0 ? 1 : 0;
  }
  return different;
}

// Ranks of one host come first where a group has two levels, and NCCL has an order of its own; else
// it is the rank order, to the bit.
void expect_sum(Communicator& group, const Tensor& data) {
  const std::string backend = group.backend_name();
  if (backend != "shm+mpi" && backend != "nccl") {
    EXPECT_EQ(differences(data, [&](auto i) { return rank_ordered_sum(group.size(), i); }), 0)
        << data.size() << " elements";
    return;
  }
  const Tensor gathered(group.device(), {group.size(), data.size()}, DType::f32);
  group.all_gather(data, gathered).wait();
  const Tensor all = on_host(gathered);
  const Tensor own = on_host(data);
  for (std::int64_t i = 0; i < data.size(); ++i) {
    double exact = 0.0;
    double size = 0.0;
    for (int rank = 0; rank < group.size(); ++rank) {
      exact += value(rank, i);
      size += std::abs(value(rank, i));
      const std::int64_t there = rank * data.size() + i;
      ASSERT_EQ(std::memcmp(all.as<float>() + there, own.as<float>() + i, sizeof(float)), 0)
          << "rank " << rank << ", element " << i;
    }
    ASSERT_NEAR(own.as<float>()[i], exact, 1e-6 * size) << "element " << i;
  }
}

TEST_P(Conformance, AddsFromPrivateMemory) {
  run([](Communicator& group) {
    for (const std::int64_t size : kSizes) {
      const Tensor data = private_values(group, size);
      group.all_reduce(data, ReduceOp::sum).wait();
      expect_sum(group, data);
    }
  });
}

TEST_P(Conformance, AddsInAllocatedMemory) {
  run([](Communicator& group) {
    for (const std::int64_t size : kSizes) {
      const Tensor data = filled(group.allocate(size, DType::f32), group.rank());
      group.all_reduce(data, ReduceOp::sum).wait();
      expect_sum(group, data);
    }
  });
}

TEST_P(Conformance, AddsWhereOneRankHasPrivateMemory) {
  run([](Communicator& group) {
    const Tensor allocated = group.allocate(5001, DType::f32);
    const Tensor data =
        group.rank() == 0 ? private_values(group, 5001) : filled(allocated, group.rank());
    group.all_reduce(data, ReduceOp::sum).wait();
    expect_sum(group, data);
  });
}

TEST_P(Conformance, FindsMinimumAndMaximumOfEveryType) {
  run([](Communicator& group) {
    constexpr std::int64_t kSize = 40'001;
    const Tensor integers(Device{}, {kSize}, DType::i64);
    const Tensor reals(Device{}, {kSize}, DType::f64);
    for (std::int64_t i = 0; i < kSize; ++i) {
      integers.as<std::int64_t>()[i] = (group.rank() + i) % group.size() - 1;
      reals.as<double>()[i] = 0.5 * static_cast<double>((group.rank() + i) % group.size());
    }
    const Tensor least = on_device(group.device(), integers);
    const Tensor most = on_device(group.device(), reals);
    group.all_reduce(least, ReduceOp::min).wait();
    group.all_reduce(most, ReduceOp::max).wait();
    const Tensor minima = on_host(least);
    const Tensor maxima = on_host(most);
    for (std::int64_t i = 0; i < kSize; ++i) {
      ASSERT_EQ(minima.as<std::int64_t>()[i], -1);
      ASSERT_EQ(maxima.as<double>()[i], 0.5 * (group.size() - 1));
    }
  });
}

TEST_P(Conformance, KeepsANanInMinimumAndMaximum) {
  run([](Communicator& group) {
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      for (int bad = 0; bad < group.size(); ++bad) {
        const Tensor mine(Device{}, {1}, DType::f32);
        *mine.as<float>() = group.rank() == bad ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
        const Tensor data = on_device(group.device(), mine);
        group.all_reduce(data, op).wait();
        EXPECT_TRUE(std::isnan(*on_host(data).as<float>()));
      }
    }
  });
}

TEST_P(Conformance, SumsIntegersExactly) {
  run([](Communicator& group) {
    const Tensor mine(Device{}, {3}, DType::i64);
    for (int i = 0; i < 3; ++i) {
      mine.as<std::int64_t>()[i] = (std::int64_t{1} << 60) / 4 + group.rank() + i;
    }
    const Tensor summed = on_device(group.device(), mine);
    group.all_reduce(summed, ReduceOp::sum).wait();
    const Tensor data = on_host(summed);
    const std::int64_t n = group.size();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(data.as<std::int64_t>()[i],
                n * ((std::int64_t{1} << 60) / 4 + i) + n * (n - 1) / 2);
    }
  });
}

TEST_P(Conformance, ReducesPartsByTheTreeInPlace) {
  run([](Communicator& group) {
    for (const std::int64_t leaves : {std::int64_t{4}, std::int64_t{5}, std::int64_t{12}}) {
      const auto plan = std::make_shared<SumPlan>(invariant_plan(group.size(), leaves));
      const auto cover = canonical_cover(owned_leaves(group.rank(), group.size(), leaves), leaves);
      for (const std::int64_t size : {0, 1, 7, 16, 1023, 1025, 9001}) {
        const auto leaf_values = [&](std::int64_t i) {
          std::vector<float> values;
          for (int leaf = 0; leaf < leaves; ++leaf) values.push_back(value(leaf, i));
          return values;
        };
        std::vector<Tensor> parts;
        // Every rank makes the same number of allocations.
        for (std::size_t slot = 0; slot < 8; ++slot) {
          const Tensor memory = group.allocate(size, DType::f32);
          if (slot >= cover.size()) continue;
          const Tensor node(Device{}, {size}, DType::f32);
          for (std::int64_t i = 0; i < size; ++i) {
            node.as<float>()[i] = *testing_support::tree_sum(leaf_values(i), cover[slot]);
          }
          put(node, memory);
          parts.push_back(memory);
        }
        ASSERT_EQ(parts.size(), cover.size());
        group.reduce_parts(parts, parts.front(), plan).wait();
        const Tensor sum = on_host(parts.front());
        for (std::int64_t i = 0; i < size; ++i) {
          ASSERT_EQ(sum.as<float>()[i], testing_support::tree_sum(leaf_values(i)))
              << size << " elements, element " << i;
        }
      }
    }
  });
}

// Two of them, started without waiting, in every order of what is ready first; one rank is late.
TEST_P(Conformance, CarriesOutPreparedReductionsAgainAndAgain) {
  run([](Communicator& group) {
    const auto plan = std::make_shared<SumPlan>(ordered_plan(group.size()));
    for (const std::int64_t size : {1, 100, 1025, 100'003}) {
      const Tensor one = group.allocate(size, DType::f32);
      const Tensor other = group.allocate(size, DType::f32);
      PreparedReduction first = group.prepare_reduce_parts({one}, one, plan);
      PreparedReduction second = group.prepare_reduce_parts({other}, other, plan);
      for (int round = 0; round < 4; ++round) {
        filled(one, group.rank());
        filled(other, group.rank());
        if (round == group.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        const Work sums[] = {first.start(), second.start()};
        for (const Work& sum : sums) sum.wait();
        for (const Tensor& sum : {one, other}) {
          const auto wanted = [&](auto i) { return rank_ordered_sum(group.size(), i); };
          EXPECT_EQ(differences(sum, wanted), 0) << size << " elements, round " << round;
        }
      }
    }
  });
}

// Slices that nothing divides, one of them empty.
std::vector<std::int64_t> uneven_edges(int ranks, std::int64_t size) {
  std::vector<std::int64_t> edges{0};
  for (int rank = 1; rank < ranks; ++rank) {
    edges.push_back(rank == 2 ? edges.back()
                              : std::min(size, size * rank * rank / ranks / ranks + rank));
  }
  std::sort(edges.begin(), edges.end());
  edges.push_back(size);
  return edges;
}

TEST_P(Conformance, ReducesEachSliceWhereItIsWanted) {
  run([](Communicator& group) {
    const auto plan = std::make_shared<SumPlan>(ordered_plan(group.size()));
    for (const std::int64_t size : kSizes) {
      const Tensor data = filled(group.allocate(size, DType::f32), group.rank());
      const auto edges = uneven_edges(group.size(), size);
      group.reduce_scatter({data}, data, plan, edges).wait();
      const auto rank = static_cast<std::size_t>(group.rank());
      const std::int64_t first = edges[rank];
      const Tensor mine = data.rows(first, edges[rank + 1]);
      EXPECT_EQ(
          differences(mine, [&](auto i) { return rank_ordered_sum(group.size(), first + i); }), 0)
          << size << " elements, rank " << rank;
    }
  });
}

void round_to_bf16(std::span<float> values) {
  kernels::round_elements(values.data(), DType::bf16, values.data(), values.size());
}

void fill_rounded(const Tensor& tensor, int rank) {
  const Tensor values = host_values(tensor.size(), rank);
  round_to_bf16({values.as<float>(), static_cast<std::size_t>(values.size())});
  put(values, tensor);
}

// The rounded sum of rounded values, added in rank order in f32.
std::vector<float> bf16_sum(int ranks, std::int64_t size) {
  std::vector<float> sum(static_cast<std::size_t>(size));
  std::vector<float> part(sum.size());
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < part.size(); ++i)
      part[i] = value(rank, static_cast<std::int64_t>(i));
    round_to_bf16(part);
    for (std::size_t i = 0; i < part.size(); ++i) sum[i] = rank == 0 ? part[i] : sum[i] + part[i];
  }
  round_to_bf16(sum);
  return sum;
}

// Parts that are exact in bf16, f32 additions in rank order, a rounded sum: the same bits over
// every transport, which may send them in 16 bits.
TEST_P(Conformance, RoundsPartsAndSumsToTheWireType) {
  run([](Communicator& group) {
    SumPlan narrow = ordered_plan(group.size());
    narrow.parts_type = narrow.sum_type = DType::bf16;
    const auto plan = std::make_shared<SumPlan>(narrow);
    const std::string backend = group.backend_name();
    const bool sends = backend == "mpi" || backend == "nccl";
    for (const std::int64_t size : kSizes) {
      const Tensor data = group.allocate(size, DType::f32);
      fill_rounded(data, group.rank());
      const std::vector<float> wanted = bf16_sum(group.size(), size);
      const auto wanted_at = [&](std::int64_t i) { return wanted[static_cast<std::size_t>(i)]; };
      const std::uint64_t before = group.bytes_moved();
      group.reduce_parts({data}, data, plan).wait();
      EXPECT_EQ(differences(data, wanted_at), 0) << size << " elements";
      if (sends && size > 100'000) {
        // Slices of cache lines are not quite even.
        const double shares = 2.0 * (group.size() - 1) / group.size();
        EXPECT_NEAR(static_cast<double>(group.bytes_moved() - before),
                    2.0 * shares * static_cast<double>(size), 300.0);
      }
      fill_rounded(data, group.rank());
      const auto edges = uneven_edges(group.size(), size);
      group.reduce_scatter({data}, data, plan, edges).wait();
      const auto rank = static_cast<std::size_t>(group.rank());
      EXPECT_EQ(differences(data.rows(edges[rank], edges[rank + 1]),
                            [&](auto i) { return wanted_at(edges[rank] + i); }),
                0)
          << size << " elements, slice of rank " << rank;
    }
  });
}

TEST_P(Conformance, GathersSlicesInPlace) {
  run([](Communicator& group) {
    for (const std::int64_t size : kSizes) {
      const Tensor data = filled(group.allocate(size, DType::f32), group.rank());
      const auto edges = uneven_edges(group.size(), size);
      group.all_gather_slices(data, edges).wait();
      const auto owner = [&](std::int64_t i) {
        int rank = 0;
        while (edges[static_cast<std::size_t>(rank) + 1] <= i) ++rank;
        return rank;
      };
      EXPECT_EQ(differences(data, [&](auto i) { return value(owner(i), i); }), 0)
          << size << " elements, rank " << group.rank();
    }
  });
}

TEST_P(Conformance, GathersEveryTypeInRankOrder) {
  run([](Communicator& group) {
    for (const std::int64_t size : kSizes) {
      for (const DType dtype : {DType::u8, DType::bf16, DType::f64}) {
        const Tensor in(Device{}, {size}, dtype);
        const Tensor gathered(group.device(), {group.size(), size}, dtype);
        if (in.bytes() > 0) std::memset(in.data(), group.rank() + 1, in.bytes());
        group.all_gather(on_device(group.device(), in), gathered).wait();
        const Tensor out = on_host(gathered);
        const auto* bytes = static_cast<const unsigned char*>(out.data());
        const std::size_t stride = in.bytes() > 999 ? 331 : 1;
        for (std::size_t i = 0; i < out.bytes(); i += stride) {
          ASSERT_EQ(bytes[i], i / in.bytes() + 1);
        }
      }
    }
  });
}

TEST_P(Conformance, BroadcastsFromEveryRank) {
  run([](Communicator& group) {
    for (const std::int64_t size : kSizes) {
      for (int root = 0; root < group.size(); ++root) {
        const Tensor data = private_values(group, size);
        group.broadcast(data, root).wait();
        EXPECT_EQ(differences(data, [&](auto i) { return value(root, i); }), 0);
      }
    }
  });
}

TEST_P(Conformance, HoldsEveryRankAtABarrier) {
  run([](Communicator& group) {
    using Clock = std::chrono::steady_clock;
    for (int late = 0; late < group.size(); ++late) {
      group.barrier().wait();
      if (group.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const std::int64_t entered = Clock::now().time_since_epoch().count();
      group.barrier().wait();
      const std::int64_t passed = Clock::now().time_since_epoch().count();
      const Tensor mine(Device{}, {1}, DType::i64);
      *mine.as<std::int64_t>() = entered;
      const Tensor last = on_device(group.device(), mine);
      group.all_reduce(last, ReduceOp::max).wait();
      // One machine, one monotonic clock.
      EXPECT_GE(passed, *on_host(last).as<std::int64_t>());
    }
  });
}

TEST_P(Conformance, AllocatesZeroesAligned) {
  run([](Communicator& group) {
    for (const std::int64_t size : kSizes) {
      const Tensor memory = group.allocate(size, DType::f32);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 64, 0U);
      EXPECT_EQ(differences(memory, [](auto) { return 0.0F; }), 0);
      filled(memory, group.rank());  // so that memory used again would show
    }
  });
}

TEST_P(Conformance, RunsQueuedOperationsInOrderAfterTheirInputs) {
  run([](Communicator& group) {
    Stream compute(group.device(), "compute");
    const Tensor data = Tensor::zeros(group.device(), {1000}, DType::f32);
    const Tensor one(Device{}, {1000}, DType::f32);
    std::fill_n(one.as<float>(), 1000, 1.0F);
    const Tensor ones = on_device(group.device(), one);
    std::vector<Work> works;
    for (int round = 0; round < 50; ++round) {
      kernels::add(compute, ones, data);
      works.push_back(group.all_reduce(data, ReduceOp::max, compute.record()));
      compute.wait(works.back().event());
    }
    compute.synchronize();
    EXPECT_EQ(differences(data, [](auto) { return 50.0F; }), 0);
    for (std::size_t i = 0; i < works.size(); ++i) EXPECT_EQ(works[i].sequence(), i + 1);
  });
}

TEST_P(Conformance, FinishesSmallOperationsQuicklyWithMoreRanksThanCores) {
  const auto began = std::chrono::steady_clock::now();
  run([](Communicator& group) {
    const Tensor data = Tensor::zeros(group.device(), {16}, DType::f32);
    for (int i = 0; i < 1000; ++i) group.all_reduce(data, ReduceOp::sum).wait();
  });
  // A waiter that spins through its time slice takes 11 to 24 ms an operation.
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(8));
}

TEST_P(Conformance, CountsTheBytesItMoves) {
  run([](Communicator& group) {
    EXPECT_EQ(group.bytes_moved(), 0U);
    const Tensor data = Tensor::zeros(group.device(), {1000}, DType::f32);
    group.all_reduce(data, ReduceOp::sum).wait();
    const auto others = static_cast<unsigned>(group.size() - 1);
    const bool ring = std::string(group.backend_name()) == "nccl";
    EXPECT_EQ(group.bytes_moved(), ring ? 8000U * others / (others + 1) : 4000U * others);
  });
}

TEST_P(Conformance, KeepsManyOperationsInOrder) {
  run([](Communicator& group) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 200; ++i) {
      const Tensor mine = Tensor::zeros(Device{}, {i % 7 + 1}, DType::i64);
      *mine.as<std::int64_t>() = i;
      tensors.push_back(on_device(group.device(), mine));
      works.push_back(group.all_reduce(tensors.back(), ReduceOp::sum));
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i].wait();
      ASSERT_EQ(*on_host(tensors[i]).as<std::int64_t>(),
                static_cast<std::int64_t>(i) * group.size());
    }
  });
}

}  // namespace
}  // namespace lockstep
