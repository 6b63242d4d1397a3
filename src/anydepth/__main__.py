from anydepth.cli import main

main()
