// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "core/file_handle.h"

namespace lockstep {

/// Throws StorageError for `error` (an errno), with a hint for the errors that have one.
[[noreturn]] void throw_file_error(std::string_view operation, const std::filesystem::path& path,
                                   int error);

/// open(2) for reading; an empty handle if there is no such file.
FileHandle open_for_reading(const std::filesystem::path& path);

/// pread until `into` is full or the file ends; the number of bytes.
std::size_t read_at(const FileHandle& file, const std::filesystem::path& path, std::uint64_t offset,
                    std::span<std::byte> into);

/// pwrite until all is written.
void write_at(const FileHandle& file, const std::filesystem::path& path, std::uint64_t offset,
              std::span<const std::byte> bytes);

/// Asks the kernel to write what was written there, and does not wait; nothing is promised.
void begin_writing(const FileHandle& file, std::uint64_t offset, std::size_t bytes) noexcept;

void sync_file(const FileHandle& file, const std::filesystem::path& path);

/// Makes names in `folder` and in every folder above it, up to `root`, survive a power cut.
void sync_folders(const std::filesystem::path& folder, const std::filesystem::path& root);

/// Makes `folder` and what is missing above it, synced.
void make_folders(const std::filesystem::path& folder);

}  // namespace lockstep
