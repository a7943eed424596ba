// SPDX-License-Identifier: Apache-2.0
#include "model/head_loss.h"

#include <algorithm>

namespace bdlm {
namespace {

/// Host values as a column of device memory.
Buffer column(const LayerContext& c, std::span<const double> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  Buffer buffer = c.sum(n, 1);
  if (c.sums() == DType::f64) {
    c.device.copy_from_host(values.data(), buffer);
  } else {
    const std::vector<float> narrow(values.begin(), values.end());
    c.device.copy_from_host(narrow.data(), buffer);
  }
  return buffer;
}

Buffer gather(const LayerContext& c, Tensor x, const DeviceList<std::int32_t>& rows) {
  Buffer y = c.residual(rows.count, x.cols);
  c.device.gather_rows(x, rows.data, y);
  return y;
}

}  // namespace

std::vector<double> to_host(Device& device, Tensor column) {
  if (column.dtype == DType::f64) {
    std::vector<double> host(static_cast<std::size_t>(column.rows));
    device.copy_to_host(column, host.data());
    return host;
  }
  std::vector<float> host(static_cast<std::size_t>(column.rows));
  device.copy_to_host(column, host.data());
  return {host.begin(), host.end()};
}

HeadResult head_loss(const LayerContext& c, const HeadTensors& t, Tensor x,
                     std::span<const std::int32_t> rows, const HeadTargets& targets,
                     std::int64_t chunk) {
  Device& device = c.device;
  const bool train = !t.dhead.empty();
  const auto n = static_cast<std::int64_t>(rows.size());
  const bool all = n == x.rows;
  const DeviceList<std::int32_t> list = device.upload(rows);
  const DeviceList<std::int32_t> tokens = device.upload(targets.tokens);

  const Buffer gathered = all ? Buffer() : gather(c, x, list);
  const Tensor states = all ? x : gathered.tensor();
  const Buffer normed = c.activation(n, x.cols), rstd = c.sum(n, 1);
  device.rms_norm_forward(states, t.norm, c.config.rms_norm_eps, normed, rstd);

  const Buffer weights = column(c, targets.weights);
  Buffer nll = c.sum(n, 1);
  const Buffer dnormed = train ? c.activation(n, x.cols) : Buffer();
  const std::int64_t vocab = t.head.rows;
  const std::int64_t most = std::min(chunk, n);
  const Buffer logits_memory = device.allocate(most, vocab, c.sums(), Memory::workspace);
  const bool cast = c.compute != c.sums();
  const Buffer dlogits_memory =
      cast ? device.allocate(most, vocab, c.compute, Memory::workspace) : Buffer();
  for (std::int64_t first = 0; first < n; first += most) {
    const std::int64_t count = std::min(most, n - first);
    const Tensor logits = logits_memory.tensor().slice_rows(0, count);
    const Tensor dlogits = cast ? dlogits_memory.tensor().slice_rows(0, count) : logits;
    const Tensor part = normed.tensor().slice_rows(first, count);
    device.gemm(part, Transpose::no, t.head, Transpose::yes, logits, Accumulate::no);
    device.cross_entropy(logits, tokens.data + first, weights.tensor().slice_rows(first, count),
                         targets.excluded, nll.tensor().slice_rows(first, count), dlogits);
    if (!train) continue;
    device.gemm(dlogits, Transpose::yes, part, Transpose::no, t.dhead, Accumulate::yes);
    device.gemm(dlogits, Transpose::no, t.head, Transpose::no,
                dnormed.tensor().slice_rows(first, count), Accumulate::no);
  }

  HeadResult result;
  if (train) {
    result.dx = c.residual(x.rows, x.cols);
    device.zero(result.dx);
    if (all) {
      device.rms_norm_backward(states, t.norm, rstd, dnormed, result.dx, t.dnorm);
    } else {
      const Buffer dstates = c.residual(n, x.cols);
      device.zero(dstates);
      device.rms_norm_backward(states, t.norm, rstd, dnormed, dstates, t.dnorm);
      device.scatter_add_rows(dstates, list.data, result.dx);
    }
  }
  result.nll = std::move(nll);
  return result;
}

Buffer head_logits(const LayerContext& c, const HeadTensors& t, Tensor x,
                   std::span<const std::int32_t> rows) {
  const Buffer states = gather(c, x, c.device.upload(rows));
  const Buffer normed = c.activation(states.tensor().rows, x.cols);
  const Buffer rstd = c.sum(states.tensor().rows, 1);
  c.device.rms_norm_forward(states, t.norm, c.config.rms_norm_eps, normed, rstd);
  Buffer logits = c.sum(states.tensor().rows, t.head.rows);
  c.device.gemm(normed, Transpose::no, t.head, Transpose::yes, logits, Accumulate::no);
  return logits;
}

}  // namespace bdlm
