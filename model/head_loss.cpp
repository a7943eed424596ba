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

/// Losses and the gradient of the logits in their place (or in dlogits), over the whole vocabulary.
void shared_cross_entropy(const LayerContext& c, const HeadTensors& t, Tensor logits,
                          const std::int32_t* tokens, Tensor weights, std::int64_t excluded,
                          Tensor nll, Tensor dlogits) {
  const std::int64_t n = logits.rows;
  const Buffer mine = c.sum(n, 3), parts = c.sum(n * c.scattered.ranks(), 3);
  c.device.cross_entropy_statistics(logits, t.first, tokens, excluded, mine);
  c.scattered.gather_equal(mine, parts);
  c.device.merge_cross_entropy(parts, mine, nll);
  c.device.cross_entropy_gradient(logits, t.first, tokens, weights, excluded, mine, dlogits);
}

HeadResult head_loss(const LayerContext& c, const HeadTensors& t, Tensor x, std::int64_t out,
                     std::span<const std::int32_t> rows, const HeadTargets& targets,
                     std::int64_t chunk) {
  Device& device = c.device;
  const bool train = !t.dnorm.empty();
  const auto n = static_cast<std::int64_t>(rows.size());
  const bool all = n == out;
  const RowMove move = plan_move(rows, out, c.scattered.rank(), c.scattered.ranks());
  const DeviceList<std::int32_t> held = device.upload(std::span<const std::int32_t>(move.held));
  const DeviceList<std::int32_t> tokens = device.upload(targets.tokens);

  const Buffer picked = all ? Buffer() : c.residual(move.result, x.cols);
  if (!all) c.scattered.pick(move, held, x, picked);
  const Tensor states = all ? x : picked.tensor();
  const Buffer rstd = c.sum(states.rows, 1);
  const Buffer normed = c.norm_rows(states, n, t.norm, rstd);

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
    const Tensor weight = weights.tensor().slice_rows(first, count);
    const Tensor losses = nll.tensor().slice_rows(first, count);
    device.gemm(part, Transpose::no, t.head, Transpose::yes, logits, Accumulate::no);
    if (c.scattered.alone())
      device.cross_entropy(logits, tokens.data + first, weight, targets.excluded, losses, dlogits);
    else
      shared_cross_entropy(c, t, logits, tokens.data + first, weight, targets.excluded, losses,
                           dlogits);
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
      c.norm_rows_backward(states, t.norm, rstd, dnormed, result.dx, t.dnorm);
    } else {
      const Buffer dstates = c.residual(states.rows, x.cols);
      device.zero(dstates);
      c.norm_rows_backward(states, t.norm, rstd, dnormed, dstates, t.dnorm);
      c.scattered.pick_backward(move, held, dstates, result.dx);
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
