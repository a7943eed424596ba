// SPDX-License-Identifier: Apache-2.0
// Attention: schedules of interval lists, choice of the kernel, launches.
#include <algorithm>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/interval_notes.h"
#include "kernels/cuda/tensor_view.h"

namespace bdlm::cuda {
namespace {

bool aligned16(const Tensor& x) {
  const auto stride = static_cast<std::size_t>(x.stride) * size_of(x.dtype);
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && stride % 16 == 0;
}

AttentionSizes sizes_of(const AttentionShape& shape) {
  require(shape.head_dim <= most_channels, "attention on a CUDA device has heads of at most {} "
          "channels, not {}",
          most_channels, shape.head_dim);
  return {static_cast<std::int32_t>(shape.heads), static_cast<std::int32_t>(shape.kv_heads),
          static_cast<std::int32_t>(shape.head_dim), shape.scale};
}

IntervalSchedules& schedules_of(const KeySource& source, std::int64_t rows) {
  auto* schedules = dynamic_cast<IntervalSchedules*>(source.notes);
  require(schedules != nullptr && schedules->rows() == rows && schedules->keys() == source.key.rows,
          "attention on a CUDA device reads interval lists that upload_intervals made for its {} rows "
          "and {} keys",
          rows, source.key.rows);
  return *schedules;
}

template <class T>
AttentionSource<T> source_of(const KeySource& source, const TileList& tiles) {
  return {view<const T>(source.key), view<const T>(source.value), source.visible, tiles};
}

}  // namespace

std::shared_ptr<IntervalNotes> CudaDevice::note_intervals(std::span<const Interval> rows,
                                                          std::int64_t keys) {
  return std::make_shared<IntervalSchedules>(*this, rows, keys);
}

TileList IntervalSchedules::find(AttentionTiles tiles, bool by_key) {
  if (tiles.rows == 0) return {};  // a kernel that needs none
  auto made = std::find_if(made_.begin(), made_.end(), [&](const Made& m) {
    return m.tiles == tiles && m.by_key == by_key;
  });
  if (made == made_.end()) {
    const TileSchedule schedule = by_key
                                      ? schedule_by_key(rows_, keys_, tiles.rows, tiles.keys)
                                      : schedule_by_query(rows_, keys_, tiles.rows, tiles.keys);
    made_.push_back({tiles, by_key, device_.upload(std::span<const std::int32_t>(schedule.order)),
                     device_.upload(std::span<const std::int32_t>(schedule.begin)),
                     device_.upload(std::span<const TileRun>(schedule.runs))});
    made = made_.end() - 1;
  }
  return {made->order.data, made->begin.data, made->runs.data,
          static_cast<std::int32_t>(made->order.count)};
}

AttentionChoice CudaDevice::choice(const AttentionShape& shape,
                                   std::initializer_list<Tensor> rows) const {
  const Tensor& first = *rows.begin();
  return choose_attention(first.dtype == DType::bf16, shape.head_dim, compute_,
                          std::all_of(rows.begin(), rows.end(), aligned16));
}

void CudaDevice::attention_forward(const AttentionShape& shape, Tensor q,
                                   std::span<const KeySource> sources, Tensor out, Tensor lse,
                                   bool resume) {
  check_attention(shape, q, sources, out, lse);
  if (q.empty()) return;
  // More sources than a launch takes, or a key buffer that only the simple kernel can read.
  const bool rounds = out.dtype != lse.dtype;
  const bool several = sources.size() > most_sources;
  Buffer partial;  // kernels go on from sums only
  if ((several || resume) && rounds) partial = scratch(out.rows, out.cols, lse.dtype);
  if (partial && resume) copy(out, partial);
  const Tensor result = partial ? partial.tensor() : out;
  for (std::size_t first = 0; first == 0 || first < sources.size(); first += most_sources) {
    const auto part = sources.subspan(first, std::min<std::size_t>(most_sources, sources.size() - first));
    AttentionChoice chosen = choice(shape, {q, result});
    for (const KeySource& source : part)
      if (!aligned16(source.key) || !aligned16(source.value)) chosen = {};
    dispatch(q.dtype, [&]<class T>() {
      using A = sum_t<T>;
      AttentionForward<T> args;
      args.sizes = sizes_of(shape);
      args.q = view<const T>(q);
      for (const KeySource& source : part) {
        if (source.key.rows == 0) continue;
        const TileList tiles = schedules_of(source, q.rows).by_query(chosen.forward);
        args.sources[static_cast<std::size_t>(args.source_count++)] = source_of<T>(source, tiles);
      }
      if (result.dtype == lse.dtype)
        args.out_sum = view<A>(result);
      else
        args.out = view<T>(result);
      args.lse = view<A>(lse);
      args.resume = resume || first > 0;
      if constexpr (std::is_same_v<T, bfloat16>) {
        if (chosen.kernel == AttentionKernel::wgmma)
          return attention_forward_wgmma(stream_, args);
        if (chosen.kernel == AttentionKernel::mma) return attention_forward_mma(stream_, args);
      }
      attention_forward_simple<T>(stream_, args);
    });
  }
  if (partial) copy(partial, out);
}

void CudaDevice::attention_delta(const AttentionShape& shape, Tensor out, Tensor dout,
                                 Tensor delta) {
  check_attention_delta(shape, out, dout, delta);
  if (dout.empty()) return;
  dispatch(dout.dtype, [&]<class T>() {
    using A = sum_t<T>;
    if (out.dtype == dout.dtype)
      cuda::attention_delta<T, T>(stream_, sizes_of(shape), view<const T>(out),
                                  view<const T>(dout), view<A>(delta));
    else
      cuda::attention_delta<T, A>(stream_, sizes_of(shape), view<const A>(out),
                                  view<const T>(dout), view<A>(delta));
  });
}

void CudaDevice::attention_backward(const AttentionShape& shape, Tensor q, const KeySource& source,
                                    Tensor lse, Tensor dout, Tensor delta, Tensor dq, Tensor dkey,
                                    Tensor dvalue) {
  check_attention_gradient(shape, q, source, lse, dout, delta, dq, dkey, dvalue);
  if (q.empty() || source.key.empty()) return;
  IntervalSchedules& schedules = schedules_of(source, q.rows);
  const AttentionChoice chosen = choice(shape, {q, source.key, source.value, dout});
  dispatch(q.dtype, [&]<class T>() {
    using A = sum_t<T>;
    const AttentionBackward<T> args{
        sizes_of(shape),
        view<const T>(q),
        source_of<T>(source, schedules.by_query(chosen.backward_query)),
        source_of<T>(source, schedules.by_key(chosen.backward_key)),
        view<const T>(dout),
        view<const A>(lse),
        view<const A>(delta),
        view<A>(dq),
        view<A>(dkey),
        view<A>(dvalue)};
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (chosen.kernel == AttentionKernel::wgmma) return attention_backward_wgmma(stream_, args);
      if (chosen.kernel == AttentionKernel::mma) return attention_backward_mma(stream_, args);
    }
    attention_backward_simple<T>(stream_, args);
  });
}

}  // namespace bdlm::cuda
