// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <ios>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "lockstep/core/tensor.h"

namespace lockstep::testing_support {

/// Tensors that a script of tests/golden has written: STEM.json {"tensors": {name: {"shape",
/// "offset"}}} and STEM.bin, f32.
class Golden {
 public:
  explicit Golden(const std::string& stem) {
    const std::string path = std::string(LOCKSTEP_GOLDEN_FOLDER) + "/" + stem;
    std::ifstream(path + ".json") >> index_;
    data_.open(path + ".bin", std::ios::binary);
  }

  const nlohmann::json& index() const noexcept { return index_; }

  Tensor tensor(const std::string& name) {
    const auto& entry = index_.at("tensors").at(name);
    Tensor tensor(Device{}, entry.at("shape").get<Shape>(), DType::f32);
    data_.seekg(entry.at("offset").get<std::streamoff>() * 4);
    data_.read(static_cast<char*>(tensor.data()), static_cast<std::streamsize>(tensor.bytes()));
    if (!data_) throw std::runtime_error("golden tensor " + name + " is cut off");
    return tensor;
  }

 private:
  nlohmann::json index_;
  std::ifstream data_;
};

}  // namespace lockstep::testing_support
