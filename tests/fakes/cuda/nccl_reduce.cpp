// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/nccl_reduce.h"

#include <algorithm>
#include <cstdint>

#include "tests/fakes/cuda/elements.h"
#include "tests/fakes/cuda/machine.h"

namespace lockstep::fake {
namespace {

template <typename Sum>
Sum combine(ncclRedOp_t reduction, Sum a, Sum b) {
  switch (reduction) {
    case ncclProd:
      return static_cast<Sum>(a * b);
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return static_cast<Sum>(a + b);
  }
}

// Elements are read and written through `load` and `store`; sums are of type Sum. Integers are
// summed without a sign, so that they wrap as on a device.
template <typename Element, typename Sum, typename Load, typename Store>
void reduce_as(ncclRedOp_t reduction, const std::vector<const void*>& inputs, std::size_t count,
               void* out, Load load, Store store) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = [&](std::size_t r) {
      return Sum{load(static_cast<const Element*>(inputs[r])[i])};
    };
    Sum sum = at(0);
    for (std::size_t r = 1; r < inputs.size(); ++r) sum = combine(reduction, sum, at(r));
    if (reduction == ncclAvg) sum = static_cast<Sum>(sum / static_cast<Sum>(inputs.size()));
    static_cast<Element*>(out)[i] = store(sum);
  }
}

template <typename Element>
void reduce_plain(ncclRedOp_t reduction, const std::vector<const void*>& inputs, std::size_t count,
                  void* out) {
  const auto same = [](Element x) { return x; };
  reduce_as<Element, Element>(reduction, inputs, count, out, same, same);
}

template <typename Signed, typename Unsigned>
void reduce_signed(ncclRedOp_t reduction, const std::vector<const void*>& inputs, std::size_t count,
                   void* out) {
  if (reduction == ncclSum || reduction == ncclProd) {
    reduce_plain<Unsigned>(reduction, inputs, count, out);
  } else {
    reduce_plain<Signed>(reduction, inputs, count, out);
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

std::string name_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return "i8";
    case ncclUint8:
      return "u8";
    case ncclFloat16:
      return "f16";
    case ncclBfloat16:
      return "bf16";
    case ncclInt32:
      return "i32";
    case ncclUint32:
      return "u32";
    case ncclFloat32:
      return "f32";
    case ncclInt64:
      return "i64";
    case ncclUint64:
      return "u64";
    case ncclFloat64:
      return "f64";
    default:
      return "type " + std::to_string(static_cast<int>(type));
  }
}

bool is_known(ncclRedOp_t reduction) { return reduction >= ncclSum && reduction <= ncclAvg; }

void reduce(ncclDataType_t type, ncclRedOp_t reduction, const std::vector<const void*>& inputs,
            std::size_t count, void* out) {
  switch (type) {
    case ncclFloat32:
      return reduce_plain<float>(reduction, inputs, count, out);
    case ncclFloat64:
      return reduce_plain<double>(reduction, inputs, count, out);
    case ncclBfloat16:
      return reduce_as<std::uint16_t, float>(reduction, inputs, count, out, from_bf16, to_bf16);
    case ncclFloat16:
      return reduce_as<std::uint16_t, float>(reduction, inputs, count, out, from_f16, to_f16);
    case ncclInt8:
      return reduce_signed<std::int8_t, std::uint8_t>(reduction, inputs, count, out);
    case ncclInt32:
      return reduce_signed<std::int32_t, std::uint32_t>(reduction, inputs, count, out);
    case ncclInt64:
      return reduce_signed<std::int64_t, std::uint64_t>(reduction, inputs, count, out);
    case ncclUint8:
      return reduce_plain<std::uint8_t>(reduction, inputs, count, out);
    case ncclUint32:
      return reduce_plain<std::uint32_t>(reduction, inputs, count, out);
    case ncclUint64:
      return reduce_plain<std::uint64_t>(reduction, inputs, count, out);
    default:
      die("NCCL: a sum of " + name_of(type));
  }
}

}  // namespace lockstep::fake
