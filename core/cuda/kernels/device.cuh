// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

/// What only a device has: everything else in these kernels is plain C++, which a test can run
/// thread by thread on the host behind another header of this name.
namespace lockstep::cuda {

/// The block's dynamic shared memory.
__device__ __forceinline__ float4* shared_memory() {
  extern __shared__ float4 memory[];
  return memory;
}

__device__ __forceinline__ void barrier() { __syncthreads(); }

/// The value of the lane whose number differs in the bits of `mask`. All lanes of the warp call it.
__device__ __forceinline__ float from_lane_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffU, value, mask);
}

/// Two floats as bf16 in one register, `low` in the lower half.
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Four 8 × 8 matrices of bf16, whose rows of 16 bytes in shared memory the lanes name: lane
/// 8m + r row r of matrix m. A lane gets elements 2t and 2t + 1 of row g of each, where g =
/// lane / 4 and t = lane % 4. (PTX ISA, ldmatrix.)
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], const std::uint16_t* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
/// The same, transposed: elements g of rows 2t and 2t + 1.
__device__ __forceinline__ void load_transposed(std::uint32_t (&to)[4], const std::uint16_t* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// sums [16, 8] += a [16, 16] · b [16, 8] over a warp. (PTX ISA, mma.m16n8k16.) With g and t as
/// above a lane holds
///   a     rows g, g + 8, g, g + 8 at columns 2t + {0, 1}, the last two 8 columns on;
///   b     rows 2t + {0, 1} of column g, the second 8 rows on;
///   sums  row g at columns 2t + {0, 1}, then row g + 8.
__device__ __forceinline__ void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace lockstep::cuda
