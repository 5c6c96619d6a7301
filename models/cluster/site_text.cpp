#include "models/cluster/site_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "models/base/refusal.hpp"

namespace motley {

Site read_site(const Yaml& node) {
  const Fields fields(node, "`site`", {"pue", "electricity", "carbon", "node_power"});
  Site site;
  if (const Yaml value = fields.find("pue"))
    site.pue =
        to_bounded_number(value, {.least = 1, .hint = "a site draws no less than its nodes do: 1 or more"});
  if (const Yaml value = fields.find("electricity"))
    site.electricity = to_quantity(value, Dimension::dollars_per_energy, Sign::not_negative);
  if (const Yaml value = fields.find("carbon"))
    site.carbon = to_quantity(value, Dimension::carbon_per_energy, Sign::not_negative);
  if (const Yaml value = fields.find("node_power"))
    site.node_watts = to_quantity(value, Dimension::watts, Sign::not_negative);
  return site;
}

std::string print(const Site& site) {
  std::vector<std::string> parts;
  if (site.pue != 1) parts.push_back("pue: " + format_exact(site.pue));
  if (site.electricity)
    parts.push_back("electricity: " + format_exact(*site.electricity, Dimension::dollars_per_energy));
  if (site.carbon) parts.push_back("carbon: " + format_exact(*site.carbon, Dimension::carbon_per_energy));
  if (site.node_watts > 0) parts.push_back("node_power: " + format_exact(site.node_watts, Dimension::watts));
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

}  // namespace motley
