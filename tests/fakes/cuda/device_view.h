// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

/// Memory of the fake devices has two addresses. The one that cudaMalloc gives faults when anybody
/// reads or writes it, as a GPU's memory does on the host; what a stream's worker does in a
/// device's place goes through the other one, its view.
namespace lockstep::fake {

/// Bytes aligned to `alignment`, seen by the view alone. Null without memory. An address is never
/// given twice.
void* reserve_device_memory(std::size_t bytes, std::size_t alignment);
/// Its memory goes back; both addresses fault from now on.
void release_device_memory(void* data, std::size_t bytes);

/// The view of an address of a device; any other address is its own.
void* device_view(const void* data);
template <typename T>
T* view(T* data) {
  return static_cast<T*>(device_view(const_cast<std::remove_const_t<T>*>(data)));
}

/// Puts views in the place of all addresses of a device among a kernel's arguments, which may be
/// any struct: pointers are aligned.
void view_arguments(void* args, std::size_t bytes);

}  // namespace lockstep::fake
