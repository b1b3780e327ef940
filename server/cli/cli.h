// The command line: one subcommand a file, flags = environment = config file.
#pragma once

namespace headroom::server {

// Exit codes of every subcommand.
inline constexpr int kExitOk = 0;
inline constexpr int kExitDiffers = 1;  // headmap diff, headmap check
inline constexpr int kExitInternal = 70;
inline constexpr int kExitDrainTimedOut = 75;
inline constexpr int kExitConfiguration = 78;

// Parses, runs and returns the exit code.
int RunCli(int argc, char** argv);

}  // namespace headroom::server
