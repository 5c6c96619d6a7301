#include "models/software.hpp"

#include "models/describe_text.hpp"
#include "models/scenario.hpp"

namespace motley {
namespace {

Interval read_interval(const Yaml& node, Regime regime) {
  const Fields fields(node, "an interval", {"low", "high", "source"});
  return {regime, to_number(fields.need("low"), Sign::positive),
          to_number(fields.need("high"), Sign::positive), to_text(fields.need("source"))};
}

}  // namespace

std::string_view name_of(Regime regime) {
  switch (regime) {
    case Regime::calibrated:
      return "calibrated";
    case Regime::similar:
      return "similar";
    case Regime::unseen:
      break;
  }
  return "unseen";
}

Interval interval_of_unseen() {
  const std::string path = data_folder() + "/platforms/published/unseen.yaml";
  return read_interval(Fields(read_yaml(path), "a regime", {"interval"}).need("interval"), Regime::unseen);
}

Interval use_software(const Yaml& name, const std::string& folder, Cluster& cluster) {
  const std::string path = find_file(to_text(name), folder, "platforms/software", ".yaml", name->where);
  const Fields file(read_yaml(path, name->where), "software", {"on", "network", "interval"});
  const Yaml on = file.need("on");
  bool all_known = true;
  for (NodeGroup& group : cluster.groups) {
    if (const YamlEntry* const figures = on->find(group.chip.name))
      replace_figures(figures->value, group.chip);
    else
      all_known = false;
    if (const Yaml network = file.find("network"))
      for (Nic& nic : group.nics)
        nic.bandwidth *=
            to_number(Fields(network, "a figure", {"value", "source"}).need("value"), Sign::positive);
  }
  build_topology(cluster);
  const Yaml interval = file.find("interval");
  if (interval && all_known) return read_interval(interval, Regime::calibrated);
  Interval unseen = interval_of_unseen();
  unseen.regime = Regime::similar;
  return unseen;
}

Interval use_software(const std::string& name, Cluster& cluster) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.text = name;
  return use_software(std::make_shared<const YamlNode>(std::move(node)), ".", cluster);
}

}  // namespace motley
