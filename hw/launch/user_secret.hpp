// A secret that all processes of this user on this host know and no other user does, for jobs that nobody has given a
// token. Read next: hw/launch/place.hpp.
#pragma once

#include <string>

namespace motley {

// The first process that asks draws it; it stands in a file that only the user can read, until the host starts anew.
// `folder`: one that every user may write to; it exists, and is emptied when the host starts. Throws Refusal
// "no-job-token" where there can be no such file.
std::string secret_of_user(const std::string& folder = "/dev/shm");

}  // namespace motley
