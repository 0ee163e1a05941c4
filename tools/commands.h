#ifndef STRATA_TOOLS_COMMANDS_H_
#define STRATA_TOOLS_COMMANDS_H_

namespace strata {

// A subcommand. run gets its own name as argv[0], returns the exit code, and throws Error for one-line
// messages.
struct Command {
  const char* name;
  const char* summary;
  int (*run)(int argc, char** argv);
};

int RunBench(int argc, char** argv);
int RunCompare(int argc, char** argv);
int RunConvert(int argc, char** argv);
int RunEval(int argc, char** argv);
int RunGenerate(int argc, char** argv);
int RunMechanisms(int argc, char** argv);
int RunTokenize(int argc, char** argv);
int RunTrace(int argc, char** argv);
int RunTrain(int argc, char** argv);

// All of them, in the order of `strata --help`.
inline constexpr Command kCommands[] = {
    {"compare", "train several residual connections on equal terms and compare them", RunCompare},
    {"train", "train one model, or go on with one", RunTrain},
    {"eval", "score text with a trained model", RunEval},
    {"generate", "write text with a trained model", RunGenerate},
    {"tokenize", "train a BPE tokenizer on text", RunTokenize},
    {"convert", "map a released checkpoint's residual connection to strata's names, or back", RunConvert},
    {"mechanisms", "list the residual connections, or explain one", RunMechanisms},
    {"trace", "run one mechanism on the numbers of a JSON file, step by step", RunTrace},
    {"bench", "measure kernels and training against the limits of this machine", RunBench},
};

}  // namespace strata

#endif  // STRATA_TOOLS_COMMANDS_H_
