// SPDX-License-Identifier: Apache-2.0
// From the boundary's Tensor to what launch functions take.
#pragma once

#include "kernels/cuda/view.h"
#include "kernels/dispatch.h"

namespace bdlm::cuda {

/// T may be const. An empty tensor of any dtype gives an empty view.
template <class T>
View<T> view(const Tensor& x) {
  if (!x.data) return {};
  return {x.as<std::remove_const_t<T>>(), x.rows, x.cols, x.stride};
}

/// body.operator()<X, Y>() for the types of x and y.
template <class Body>
void dispatch_pair(const Tensor& x, const Tensor& y, Body&& body) {
  dispatch(x.dtype, [&]<class X>() {
    dispatch(y.dtype, [&]<class Y>() { body.template operator()<X, Y>(); });
  });
}

}  // namespace bdlm::cuda
