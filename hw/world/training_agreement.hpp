// What all ranks of a training must have alike, as the rendezvous compares it: every field of `train:`, the model and
// the bytes of the text. Read next: hw/launch/hello.hpp.
#pragma once

#include "hw/launch/agreement.hpp"
#include "hw/rank/data.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// `text`: null: the data are made up. The path of the text may differ from host to host, and its bytes may not.
Agreement training_agreement(const Job& job, const Text* text);

}  // namespace motley
