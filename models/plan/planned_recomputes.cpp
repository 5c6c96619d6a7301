#include "models/plan/planned_recomputes.hpp"

namespace motley {

std::vector<Recompute> planned_recomputes(const Transformer& transformer) {
  Recompute light, heavy;
  light.add(Module::activation);
  if (transformer.norms_inputs() || transformer.latent.used()) light.add(Module::norms);
  heavy = light;
  if (transformer.latent.used()) heavy.add(Module::latent);
  if (transformer.experts.count == 0) heavy.add(Module::inner);
  std::vector<Recompute> list{Recompute::none, light};
  if (heavy != light) list.push_back(heavy);
  list.push_back(Recompute::selective);
  list.push_back(Recompute::full);
  return list;
}

}  // namespace motley
