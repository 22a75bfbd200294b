// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/simd_targets.h"
#include "core/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/instruction_set.cpp"
#include "hwy/foreach_target.h"  // before highway.h

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace {
const char* name_of_target() { return hwy::TargetName(HWY_TARGET); }
}  // namespace
}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(name_of_target);
}  // namespace

const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(name_of_target)(); }

}  // namespace lockstep::kernels
#endif
