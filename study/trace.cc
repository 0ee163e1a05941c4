#include "study/trace.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "residual/mixing.h"
#include "residual/row_norm.h"

namespace strata {
namespace {

using nlohmann::ordered_json;
using Numbers = std::vector<double>;

class Tracer {
 public:
  explicit Tracer(const TraceCase& c)
      : case_(c),
        walker_(*c.mechanism, Walker<double>::Mode::kTrain),
        norm_(c.dim, false, c.norm_eps),
        inputs_(static_cast<size_t>(c.sites()) + 1),
        updates_(static_cast<size_t>(c.sites())) {}

  ordered_json Run() {
    Forward();
    ordered_json out = {{"sites", ordered_json::array()}};
    for (int site = 0; site < case_.sites(); ++site) out["sites"].push_back(OfSite(site));
    out["head"] = {{"coefficients", Coefficients(case_.sites(), "head")}};
    out["output"] = Rows("output", inputs_.back().data());
    AddMixing(&out);
    if (case_.cotangent) out["gradients"] = Backward();
    return out;
  }

 private:
  int64_t Total() const { return case_.tokens * case_.dim; }

  void Forward() {
    std::vector<Numbers> slots(static_cast<size_t>(case_.mechanism->open_slots()), case_.start);
    const size_t count = slots.size(), dim = static_cast<size_t>(case_.dim);
    for (size_t k = 0; case_.from_state && k < count; ++k) {
      slots[k].resize(static_cast<size_t>(Total()));
      for (size_t t = 0; t < static_cast<size_t>(case_.tokens); ++t) {
        std::copy_n(case_.start.begin() + static_cast<int64_t>((t * count + k) * dim), dim,
                    slots[k].begin() + static_cast<int64_t>(t * dim));
      }
    }
    std::vector<const double*> pointers;
    for (const Numbers& slot : slots) pointers.push_back(slot.data());
    const double* x = walker_.Begin(case_.parameters.data(), pointers, case_.tokens);
    for (int site = 0;; ++site) {
      inputs_[static_cast<size_t>(site)].assign(x, x + Total());
      if (site == case_.sites()) return;
      Numbers& u = updates_[static_cast<size_t>(site)];
      u = Apply(case_.sublayers[static_cast<size_t>(site)], inputs_[static_cast<size_t>(site)]);
      std::copy(u.begin(), u.end(), walker_.update());
      x = walker_.Next();
    }
  }

  // What a linear sublayer multiplies: x or N(x), [tokens, dim].
  Numbers Operand(const TraceSublayer& sublayer, const Numbers& x, Numbers* rstd) const {
    Numbers n = x;
    rstd->assign(static_cast<size_t>(case_.tokens), 1.0);
    for (int64_t t = 0; sublayer.norm && t < case_.tokens; ++t) {
      (*rstd)[static_cast<size_t>(t)] = norm_.Apply(x.data() + t * case_.dim, n.data() + t * case_.dim);
    }
    return n;
  }

  Numbers Apply(const TraceSublayer& sublayer, const Numbers& x) const {
    if (sublayer.kind == TraceSublayer::Kind::kConstant) return sublayer.values;
    Numbers u(x.size(), 0.0), rstd;
    if (sublayer.kind == TraceSublayer::Kind::kZero) return u;
    const Numbers n = Operand(sublayer, x, &rstd);
    const size_t dim = static_cast<size_t>(case_.dim);
    for (size_t i = 0; i < u.size(); ++i) {
      const double *row = sublayer.values.data() + i % dim * dim, *of_token = n.data() + i / dim * dim;
      for (size_t k = 0; k < dim; ++k) u[i] += row[k] * of_token[k];
    }
    return u;
  }

  // dx assigned; returns the gradient of the sublayer's own numbers.
  Numbers ApplyVjp(const TraceSublayer& sublayer, const Numbers& x, const double* du, Numbers* dx) const {
    dx->assign(x.size(), 0.0);
    if (sublayer.kind == TraceSublayer::Kind::kConstant) return {du, du + x.size()};
    if (sublayer.kind == TraceSublayer::Kind::kZero) return {};
    const size_t dim = static_cast<size_t>(case_.dim);
    Numbers dw(dim * dim, 0.0), dn(x.size(), 0.0), rstd;
    const Numbers n = Operand(sublayer, x, &rstd);
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t row = i % dim * dim, token = i / dim * dim;
      for (size_t k = 0; k < dim; ++k) {
        dw[row + k] += du[i] * n[token + k];
        dn[token + k] += du[i] * sublayer.values[row + k];
      }
    }
    if (!sublayer.norm) {
      *dx = dn;
      return dw;
    }
    for (int64_t t = 0; t < case_.tokens; ++t) {
      const int64_t at = t * case_.dim;
      norm_.Vjp(n.data() + at, rstd[static_cast<size_t>(t)], dn.data() + at, dx->data() + at);
    }
    return dw;
  }

  ordered_json Rows(const std::string& where, const double* values) const {
    return Nested(where, {case_.tokens, case_.dim}, values);
  }
  // Slots [tokens, slots, dim].
  ordered_json Slots(const std::string& where, const State<double>& s) const {
    Numbers all;
    for (int64_t t = 0; t < case_.tokens; ++t) {
      for (const double* slot : s.slots) {
        all.insert(all.end(), slot + t * case_.dim, slot + (t + 1) * case_.dim);
      }
    }
    return Nested(where, {case_.tokens, static_cast<int64_t>(s.slots.size()), case_.dim}, all.data());
  }

  ordered_json OfSite(int site) const {
    const std::string where = fmt::format("sites[{}]", site);
    const auto s = static_cast<size_t>(site);
    return {{"input", Rows(where + ".input", inputs_[s].data())},
            {"update", Rows(where + ".update", updates_[s].data())},
            {"coefficients", Coefficients(site, where)},
            {"state", Slots(where + ".state", walker_.state(site + 1))}};
  }

  ordered_json Coefficients(int site, const std::string& where) const {
    const Rule rule = case_.mechanism->At(site);
    const Coefs<double> coefs = walker_.coefs(site);
    auto out = ordered_json::object();
    if (rule.read != Coef::kOne)
      out["read"] = Coefficient(where + ".read", rule.read, rule.slots, coefs.read.data());
    if (rule.keep == Coef::kToken) {
      out["keep"] = Diagonal(where + ".keep", rule, coefs.keep.data());
    } else if (rule.keep != Coef::kOne) {
      out["keep"] = Coefficient(where + ".keep", rule.keep, rule.open(), coefs.keep.data());
    }
    if (rule.write != Coef::kOne) {
      out["write"] = Coefficient(where + ".write", rule.write, rule.open(), coefs.write.data());
    }
    for (const Intermediate& i : walker_.Inside(site)) {
      std::vector<int64_t> shape{case_.tokens};
      shape.insert(shape.end(), i.shape.begin(), i.shape.end());
      const size_t dot = i.name.find('.');
      ordered_json& place = dot == std::string::npos ? out : out[i.name.substr(0, dot)];
      place[i.name.substr(dot == std::string::npos ? 0 : dot + 1)] =
          Nested(where + "." + i.name, shape, i.values.data(), i.name == "scores");
    }
    return out;
  }

  // With one slot a coefficient per channel is [tokens, dim].
  ordered_json Coefficient(const std::string& where, Coef kind, int64_t n, const double* values) const {
    std::vector<int64_t> shape{case_.tokens};
    const bool gates =
        case_.spec.name == "highway" || case_.spec.name == "state-gate" || case_.spec.name == "review";
    if (kind != Coef::kChannel || !gates) shape.push_back(n);
    if (kind == Coef::kMatrix) shape.push_back(n);
    if (kind == Coef::kChannel) shape.push_back(case_.dim);
    return Nested(where, shape, values);
  }

  // Factors of the slots that are rewritten as a matrix (to, from) over all.
  ordered_json Diagonal(const std::string& where, const Rule& rule, const double* values) const {
    const int64_t n = rule.slots;
    Numbers all(static_cast<size_t>(case_.tokens * n * n), 0.0);
    for (int64_t t = 0; t < case_.tokens; ++t) {
      for (int64_t k = 0; k < n; ++k) {
        all[static_cast<size_t>((t * n + k) * n + k)] =
            k < rule.closed ? 1 : values[t * rule.open() + k - rule.closed];
      }
    }
    return Nested(where, {case_.tokens, n, n}, all.data());
  }

  void AddMixing(ordered_json* out) const {
    if (case_.from_state) return;
    const Numbers mixing = DepthMixing(*case_.mechanism, walker_);
    const int64_t sources = case_.sites() + 1;
    if (mixing.empty() && case_.tokens > 0) return;
    (*out)["mixing"] = Nested("mixing", {case_.tokens, sources, sources}, mixing.data());
  }

  ordered_json Backward() {
    Numbers dp(case_.parameters.size(), 0.0), dx;
    auto sublayers = ordered_json::array();
    std::vector<ordered_json> reversed;
    const double* du = walker_.BeginBack(case_.cotangent->data(), dp.data());
    for (int site = case_.sites() - 1; site >= 0; --site) {
      const TraceSublayer& sublayer = case_.sublayers[static_cast<size_t>(site)];
      const Numbers own = ApplyVjp(sublayer, inputs_[static_cast<size_t>(site)], du, &dx);
      const std::string where = fmt::format("gradients.sublayers[{}]", site);
      auto json = ordered_json::object();
      if (sublayer.kind == TraceSublayer::Kind::kLinear) {
        json["linear"] = Nested(where, {case_.dim, case_.dim}, own.data());
      }
      if (sublayer.kind == TraceSublayer::Kind::kConstant) json["constant"] = Rows(where, own.data());
      reversed.push_back(std::move(json));
      du = walker_.Back(dx.data());
    }
    ordered_json out;
    if (case_.from_state) {
      out["state"] = Slots("gradients.state", walker_.slot_gradients());
    } else {
      out["embedding"] = Rows("gradients.embedding", du);
    }
    auto parameters = ordered_json::object();
    int64_t offset = 0;
    for (const Parameter& p : case_.mechanism->Parameters()) {
      parameters[p.name] = Nested("gradients.parameters." + p.name, p.shape, dp.data() + offset);
      offset += p.size();
    }
    out["parameters"] = std::move(parameters);
    for (auto i = reversed.rbegin(); i != reversed.rend(); ++i) sublayers.push_back(std::move(*i));
    out["sublayers"] = std::move(sublayers);
    return out;
  }

  const TraceCase& case_;
  Walker<double> walker_;
  RowNorm<double> norm_;
  std::vector<Numbers> inputs_, updates_;
};

}  // namespace

ordered_json Trace(const TraceCase& c) { return Tracer(c).Run(); }

}  // namespace strata
