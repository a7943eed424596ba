// SPDX-License-Identifier: Apache-2.0
// Movement, products, layers and the optimizer. Shapes: Llama 3.2 3B (hidden 3072, 24 heads of 128,
// 8 key heads, MLP 8192, vocabulary 128256) and Qwen3 4B (2560, 32 heads, MLP 9728, 151936).
#include <array>

#include "trainer/kernel_timer.h"

namespace bdlm {
namespace {

struct Model {
  std::int64_t hidden, query, key, mlp, vocab;
};
const std::array<Model, 2> models{
    {{3072, 3072, 1024, 8192, 128256}, {2560, 4096, 1024, 9728, 151936}}};
const std::array<Model, 1> tiny{{{64, 64, 32, 96, 200}}};

std::span<const Model> models_of(const KernelTimer& t) {
  return t.quick ? std::span<const Model>(tiny) : std::span<const Model>(models);
}
std::int64_t many_rows(const KernelTimer& t) { return t.quick ? 24 : 65536; }
std::int64_t rows_of(const KernelTimer& t) { return t.quick ? 16 : 32768; }
constexpr std::array both{DType::bf16, DType::f32};

std::string size(const Tensor& x) { return fmt::format("{} x {}", x.rows, x.cols); }
double list_bytes(std::int64_t count) { return 4.0 * static_cast<double>(count); }

void time_rows(KernelTimer& t, const Model& m) {
  const Buffer x = t.random(many_rows(t), m.hidden, DType::bf16);
  const Buffer y = t.zeros(many_rows(t), m.hidden, DType::bf16);
  const auto numbers = t.numbers(many_rows(t), many_rows(t), true);
  const auto order = t.device.upload(std::span<const std::int32_t>(numbers));
  const double list = list_bytes(order.count);
  t.time("gather_rows", size(x), DType::bf16, {bytes_of(x, y) + list, 0},
         [&] { t.device.gather_rows(x, order.data, y); });
  t.time("scatter_add_rows", size(x), DType::bf16, {bytes_of(x, y, y) + list, 0},
         [&] { t.device.scatter_add_rows(x, order.data, y); });
}

/// One product and its peak: c = op(a) op(b).
void time_one_gemm(KernelTimer& t, const std::string& shape, const Tensor& a, Transpose ta,
                   const Tensor& b, Transpose tb, const Tensor& c, Accumulate accumulate) {
  const std::int64_t inner = ta == Transpose::yes ? a.rows : a.cols;
  const double flops = 2.0 * static_cast<double>(c.size()) * static_cast<double>(inner);
  const double written = bytes_of(c) * (accumulate == Accumulate::yes ? 2 : 1);
  t.time("gemm", shape, a.dtype, {bytes_of(a, b) + written, flops},
         [&] { t.device.gemm(a, ta, b, tb, c, accumulate); });
}

/// A linear layer's product and the two of its backward pass.
void time_linear(KernelTimer& t, const std::string& name, std::int64_t rows, std::int64_t in,
                 std::int64_t out, DType output) {
  const Buffer x = t.random(rows, in, DType::bf16), w = t.random(out, in, DType::bf16);
  const std::string shape = fmt::format("{} x {} to {}, {}", rows, in, out, name);
  {
    const Buffer y = t.zeros(rows, out, output);
    time_one_gemm(t, shape, x, Transpose::no, w, Transpose::yes, y, Accumulate::no);
  }
  const Buffer dy = t.random(rows, out, DType::bf16);
  const Buffer dx = t.zeros(rows, in, DType::bf16), dw = t.zeros(out, in, DType::f32);
  time_one_gemm(t, shape + ", dx", dy, Transpose::no, w, Transpose::no, dx, Accumulate::no);
  time_one_gemm(t, shape + ", dw +=", dy, Transpose::yes, x, Transpose::no, dw, Accumulate::yes);
}

void time_norm(KernelTimer& t, const Model& m, DType type) {
  const DType sums = accumulate_type(type);
  const Buffer x = t.random(many_rows(t), m.hidden, type), w = t.random(1, m.hidden, type);
  const Buffer y = t.random(many_rows(t), m.hidden, type);
  const Buffer dx = t.zeros(many_rows(t), m.hidden, type);
  const Buffer rstd = t.zeros(many_rows(t), 1, sums), dw = t.zeros(1, m.hidden, sums);
  t.time("rms_norm_forward", size(x), type, {bytes_of(x, y, w, rstd), 0},
         [&] { t.device.rms_norm_forward(x, w, 1e-6, dx, rstd); });
  t.time("rms_norm_backward", size(x), type, {bytes_of(x, y, dx, dx, w, rstd, dw), 0},
         [&] { t.device.rms_norm_backward(x, w, rstd, y, dx, dw); });
}

void time_head_rotary(KernelTimer& t, std::int64_t width, bool norm) {
  const std::int64_t rows = many_rows(t), dim = t.quick ? 16 : 128, heads = width / dim;
  const Buffer x = t.random(rows, width, DType::bf16), y = t.zeros(rows, width, DType::bf16);
  const Buffer dy = t.random(rows, width, DType::f32);
  const Buffer cos = t.random(rows, dim / 2, DType::f32), sin = t.random(rows, dim / 2, DType::f32);
  const Buffer w = t.random(norm ? 1 : 0, dim, DType::bf16);
  const Buffer rstd = t.zeros(norm ? rows : 0, heads, DType::f32);
  const Buffer dw = t.zeros(norm ? 1 : 0, dim, DType::f32);
  const auto numbers = t.numbers(rows, rows, true);
  const auto positions = t.device.upload(std::span<const std::int32_t>(numbers));
  const HeadRotary args{heads, dim, w, 1e-6, positions.data, {cos, sin, {}}};
  const double tables = bytes_of(cos, sin, w, rstd) + list_bytes(rows);
  const std::string shape = fmt::format("{} x {} of {}{}", rows, heads, dim, norm ? ", norm" : "");
  t.time("head_rotary_forward", shape, DType::bf16, {bytes_of(x, y) + tables, 0},
         [&] { t.device.head_rotary_forward(args, x, y, rstd); });
  const double read = norm ? bytes_of(x, dy) : bytes_of(dy);
  t.time("head_rotary_backward", shape + ", float32 dy", DType::bf16,
         {read + bytes_of(y) + tables, 0},
         [&] { t.device.head_rotary_backward(args, x, rstd, dy, y, dw); });
}

void time_swiglu(KernelTimer& t, const Model& m) {
  const std::int64_t rows = rows_of(t);
  const Buffer x = t.random(rows, 2 * m.mlp, DType::bf16),
               dx = t.zeros(rows, 2 * m.mlp, DType::bf16);
  const Buffer y = t.random(rows, m.mlp, DType::bf16);
  t.time("swiglu_backward", size(x), DType::bf16, {bytes_of(x, y, dx), 0},
         [&] { t.device.swiglu_backward(x, y, dx); });
  t.time("swiglu_forward", size(x), DType::bf16, {bytes_of(x, y), 0},
         [&] { t.device.swiglu_forward(x, y); });
}

void time_bias(KernelTimer& t, const Model& m) {
  const Buffer y = t.random(many_rows(t), m.query, DType::bf16);
  const Buffer bias = t.random(1, m.query, DType::bf16), sums = t.zeros(1, m.query, DType::f32);
  t.time("bias_gradient", size(y), DType::bf16, {bytes_of(y, sums, sums), 0},
         [&] { t.device.bias_gradient(y, sums); });
  t.time("add_bias", size(y), DType::bf16, {bytes_of(y, y, bias), 0},
         [&] { t.device.add_bias(bias, y); });
}

void time_embedding(KernelTimer& t, const Model& m) {
  const Buffer table = t.random(m.vocab, m.hidden, DType::bf16);
  const Buffer y = t.random(many_rows(t), m.hidden, DType::bf16);
  const Buffer gradient = t.zeros(m.vocab, m.hidden, DType::f32);
  const auto host = t.numbers(many_rows(t), m.vocab);
  const auto ids = t.device.upload(std::span<const std::int32_t>(host));
  std::vector<bool> seen(static_cast<std::size_t>(m.vocab));
  double distinct = 0;  // rows of the gradient that are touched
  for (const std::int32_t id : host) {
    distinct += seen[static_cast<std::size_t>(id)] ? 0 : 1;
    seen[static_cast<std::size_t>(id)] = true;
  }
  const std::string shape = fmt::format("{} of {}", size(y), m.vocab);
  const double list = list_bytes(ids.count);
  t.time("embedding_backward", shape, DType::bf16,
         {bytes_of(y) + list + 2 * 4 * distinct * static_cast<double>(m.hidden), 0},
         [&] { t.device.embedding_backward(host, y, gradient); });
  t.time("embedding_forward", shape, DType::bf16, {bytes_of(y, y) + list, 0},
         [&] { t.device.embedding_forward(ids.data, table, y); });
}

void time_cross_entropy(KernelTimer& t, const Model& m) {
  const std::int64_t rows = t.quick ? 8 : 8192;
  const Buffer logits = t.random(rows, m.vocab, DType::f32);
  const Buffer weight = t.random(rows, 1, DType::f32), loss = t.zeros(rows, 1, DType::f32);
  const auto host = t.numbers(rows, m.vocab - 1);
  const auto targets = t.device.upload(std::span<const std::int32_t>(host));
  const Buffer dlogits = t.zeros(rows, m.vocab, DType::bf16);
  t.time("cross_entropy", size(logits), DType::bf16,
         {bytes_of(logits, dlogits, weight, loss) + list_bytes(rows), 0},
         [&] { t.device.cross_entropy(logits, targets.data, weight, m.vocab - 1, loss, dlogits); });
}

}  // namespace

void time_movement(KernelTimer& t) {
  const Model m = models_of(t)[0];
  t.group("copy", [&] {
    const Buffer x = t.random(many_rows(t), 2 * m.hidden, DType::bf16);
    const Buffer y = t.zeros(many_rows(t), 2 * m.hidden, DType::bf16);
    const Buffer sum = t.zeros(many_rows(t), 2 * m.hidden, DType::f32);
    t.time("copy", size(x), DType::bf16, {bytes_of(x, y), 0}, [&] { t.device.copy(x, y); });
    t.time("copy", size(x) + " from bfloat16", DType::f32, {bytes_of(x, sum), 0},
           [&] { t.device.copy(x, sum); });
    t.time("add", size(x) + " += bfloat16", DType::f32, {bytes_of(x, sum, sum), 0},
           [&] { t.device.add(x, sum); });
    t.time("add", size(x), DType::bf16, {bytes_of(x, y, y), 0}, [&] { t.device.add(x, y); });
    t.time("zero", size(x), DType::bf16, {bytes_of(x), 0}, [&] { t.device.zero(y); });
  });
  t.group("gather_rows", [&] { time_rows(t, m); });
}

void time_gemm(KernelTimer& t) {
  const std::int64_t n = t.quick ? 32 : 8192, rows = rows_of(t);
  t.group("gemm", [&] { time_linear(t, "square", n, n, n, DType::bf16); });
  for (const Model& m : models_of(t)) {
    t.group("gemm", [&] { time_linear(t, "query", rows, m.hidden, m.query, DType::bf16); });
    t.group("gemm",
            [&] { time_linear(t, "key and value", rows, m.hidden, 2 * m.key, DType::bf16); });
    t.group("gemm", [&] { time_linear(t, "gate and up", rows, m.hidden, 2 * m.mlp, DType::bf16); });
    t.group("gemm", [&] { time_linear(t, "down", rows, m.mlp, m.hidden, DType::bf16); });
    t.group("gemm", [&] { time_linear(t, "head", rows / 4, m.hidden, m.vocab, DType::f32); });
  }
  t.group("gemm_add", [&] {
    const Model m = models_of(t)[0];
    const Buffer a = t.random(rows, m.mlp, DType::bf16), w = t.random(m.hidden, m.mlp, DType::bf16);
    const Buffer x = t.random(rows, m.hidden, DType::bf16),
                 y = t.zeros(rows, m.hidden, DType::bf16);
    const double flops = 2.0 * static_cast<double>(y.tensor().size()) * static_cast<double>(m.mlp);
    t.time("gemm_add", fmt::format("{} x {} to {}", rows, m.mlp, m.hidden), DType::bf16,
           {bytes_of(a, w, x, y), flops},
           [&] { t.device.gemm_add(a, Transpose::no, w, Transpose::yes, x, y); });
  });
}

void time_layers(KernelTimer& t) {
  for (const Model& m : models_of(t)) {
    for (const DType type : both) t.group("rms_norm_forward", [&] { time_norm(t, m, type); });
    t.group("swiglu_forward", [&] { time_swiglu(t, m); });
    t.group("embedding_forward", [&] { time_embedding(t, m); });
    t.group("cross_entropy", [&] { time_cross_entropy(t, m); });
  }
  const Model m = models_of(t)[0];
  for (const bool norm : {false, true})
    for (const std::int64_t width : {m.query, m.key})
      t.group("head_rotary_forward", [&] { time_head_rotary(t, width, norm); });
  t.group("add_bias", [&] { time_bias(t, m); });
}

void time_optimizer(KernelTimer& t) {
  t.group("adamw", [&] {
    const std::int64_t n = t.quick ? 1000 : std::int64_t{1} << 28;
    const Buffer gradient = t.random(1, n, DType::f32), master = t.random(1, n, DType::f32);
    const Buffer first = t.zeros(1, n, DType::f32), second = t.zeros(1, n, DType::f32);
    t.time("squared_norm", size(gradient), DType::f32, {bytes_of(gradient), 0},
           [&] { t.device.squared_norm(gradient); });
    const AdamW args{1e-4, 0.9, 0.95, 1e-8, 0.1, 10, 1};
    const DecayRuns runs =
        t.device.upload_decay({{0, n / 2, true}, {n / 2, n - n / 2, false}});
    for (const DType type : both) {
      const Buffer compute = t.zeros(1, n, type);
      t.time("adamw", size(master), type,
             {bytes_of(gradient, compute) + 2 * bytes_of(master, first, second), 0},
             [&] { t.device.adamw(args, runs, master, gradient, first, second, compute); });
    }
  });
}

}  // namespace bdlm
