// One word that names a job: nothing but its own ranks may talk to it.
#pragma once

#include <string>

namespace kvstream {

/// 128 random bits as 32 hexadecimal digits.
std::string make_job_token();

}  // namespace kvstream
