// SPDX-License-Identifier: Apache-2.0
// A decoder on one rank that holds all of its parameters, without anybody to talk to.
#pragma once

#include <utility>

#include "model/decoder.h"
#include "parallel/silent_group.h"

namespace bdlm {

class WholeModel {
 public:
  WholeModel(Device& device, const ModelConfig& config, DecoderOptions options, Exchange& exchange,
             bool train)
      : parameters_(device, layout_of(config), options.compute, train),
        decoder_(device, config, whole_model(config), std::move(options),
                 {exchange, alone_, alone_, alone_}, parameters_) {}

  Decoder& decoder() { return decoder_; }
  Tensor weights() const { return parameters_.weights(); }
  Tensor gradients() const { return parameters_.gradients(); }

 private:
  SilentGroup alone_{0, 1};
  FlatParameters parameters_;
  Decoder decoder_;
};

}  // namespace bdlm
