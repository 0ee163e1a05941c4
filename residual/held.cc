#include "residual/held.h"

#include <algorithm>

namespace strata {
namespace {

class Held : public Mechanism<double> {
 public:
  Held(std::unique_ptr<Mechanism<double>> mechanism, std::vector<HeldSite> sites)
      : Mechanism<double>(Size{mechanism->sites(), mechanism->dim(), 0}),
        mechanism_(std::move(mechanism)),
        sites_(std::move(sites)) {
    sites_.resize(static_cast<size_t>(this->sites()) + 1);  // nothing is held at the head
    decided_.resize(sites_.size());
    Declare(mechanism_->Parameters());
  }

  Rule At(int site) const override {
    Rule rule = mechanism_->At(site);
    const HeldSite& held = Of(site);
    if (held.read) rule.read = held.read->kind;
    if (held.keep) rule.keep = held.keep->kind;
    if (held.write) rule.write = held.write->kind;
    if (rule.write != Coef::kOne) rule.reads_update = true;
    rule.saved = 0;  // decided_ has it
    return rule;
  }

  bool wide() const override { return true; }  // what is held is that of all tokens
  void Control(int site, const double* p, const State<double>& s, Coefs<double>* coefs) const override {
    Decided(site).Resize(mechanism_->At(site), dim(), s.tokens);
    Coefs<double> decided = Decided(site).All();
    mechanism_->Control(site, p, s, &decided);
    Take(Of(site).read, decided.read, &coefs->read);
    if (!mechanism_->At(site).sees_update) TakeWrite(site, coefs);
  }

  void Review(int site, const double* p, const State<double>& s, const double* u,
              Coefs<double>* coefs) const override {
    Coefs<double> decided = Decided(site).All();
    mechanism_->Review(site, p, s, u, &decided);
    TakeWrite(site, coefs);
  }

  void ControlVjp(int site, const double* p, const State<double>& s, const Coefs<double>& /*coefs*/,
                  Coefs<double>* dcoefs, const State<double>& ds, double* dp) const override {
    CoefBuffers<double> buffers;
    Coefs<double> free = FreeGradients(site, s.tokens, *dcoefs, &buffers);
    mechanism_->ControlVjp(site, p, s, Decided(site).All(), &free, ds, dp);
  }

  void ReviewVjp(int site, const double* p, const State<double>& s, const double* u,
                 const Coefs<double>& /*coefs*/, Coefs<double>* dcoefs, const State<double>& ds, double* du,
                 double* dp) const override {
    CoefBuffers<double> buffers;
    Coefs<double> free = FreeGradients(site, s.tokens, *dcoefs, &buffers);
    mechanism_->ReviewVjp(site, p, s, u, Decided(site).All(), &free, ds, du, dp);
  }

  std::vector<Intermediate> Inside(int site, const double* p, const State<double>& s,
                                   const Coefs<double>& /*coefs*/) const override {
    return mechanism_->Inside(site, p, s, Decided(site).All());
  }
  bool HoldGate(int site, const std::vector<double>& gate) override {
    return mechanism_->HoldGate(site, gate);
  }

 private:
  const HeldSite& Of(int site) const { return sites_[static_cast<size_t>(site)]; }
  CoefBuffers<double>& Decided(int site) const { return decided_[static_cast<size_t>(site)]; }

  static void Take(const std::optional<HeldCoef>& held, const Slice<double>& decided, Slice<double>* to) {
    if (!held) {
      std::copy_n(decided.data(), decided.size(), to->data());
      return;
    }
    const auto given = static_cast<int64_t>(held->values.size());
    for (int64_t i = 0; i < to->size(); ++i) (*to)[i] = held->values[static_cast<size_t>(i % given)];
  }
  void TakeWrite(int site, Coefs<double>* coefs) const {
    const Coefs<double> decided = Decided(site).All();
    Take(Of(site).keep, decided.keep, &coefs->keep);
    Take(Of(site).write, decided.write, &coefs->write);
  }

  // Gradients for those who decide: zero where a coefficient is held.
  Coefs<double> FreeGradients(int site, int64_t tokens, const Coefs<double>& dcoefs,
                              CoefBuffers<double>* buffers) const {
    buffers->Resize(mechanism_->At(site), dim(), tokens);
    Coefs<double> free = buffers->All();
    const auto copy = [](bool held, const Slice<double>& from, Slice<double>* to) {
      if (held) {
        to->Fill(0);
      } else {
        std::copy_n(from.data(), to->size(), to->data());
      }
    };
    copy(Of(site).read.has_value(), dcoefs.read, &free.read);
    copy(Of(site).keep.has_value(), dcoefs.keep, &free.keep);
    copy(Of(site).write.has_value(), dcoefs.write, &free.write);
    return free;
  }

  std::unique_ptr<Mechanism<double>> mechanism_;
  std::vector<HeldSite> sites_;
  mutable std::vector<CoefBuffers<double>> decided_;  // of the pass that runs
};

}  // namespace

std::unique_ptr<Mechanism<double>> MakeHeld(std::unique_ptr<Mechanism<double>> mechanism,
                                            std::vector<HeldSite> sites) {
  return std::make_unique<Held>(std::move(mechanism), std::move(sites));
}

}  // namespace strata
