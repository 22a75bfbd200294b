// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::fake {

/// What LOCKSTEP_FAKE_NCCL holds, and in tests the same by a call, which also forgets the
/// operations counted so far; parts are separated by commas:
///   remote_error@12   the 12th operation of this process fails with ncclRemoteError, late
///   stuck@20:rank1    the 20th never completes, on rank 1
///   init_never:rank1  an init that stays in progress for ever
///   no_registration   ncclCommRegister fails
///   version=2.19.3    what ncclGetVersion says
/// The rank is OMPI_COMM_WORLD_RANK. Without that variable ranks are threads: the rank is the
/// communicator's, and each one's operations are counted for themselves.
void set_nccl_faults(const std::string& list);

enum class OperationFault { none, remote_error, stuck };
/// Counts an operation.
OperationFault next_operation(int rank_of_communicator);
bool init_never_ends(int rank_of_communicator);
bool registration_fails();
/// The version to report, as a code; 0: the header's.
int pretended_version();

/// Buffers that all communicators of this process have registered.
std::size_t registered_buffers();

}  // namespace lockstep::fake
