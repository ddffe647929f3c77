"""All commands with their arguments, as a table.

A line that is not indented is a command: its name, its module below `gossamer.cli`, and what is said of it; or the name
of arguments that several have, after an ``@``. Below it stand, indented, the rest of what ``--help`` says after a
``|``; arguments of an ``@``; ``...`` where its module adds more; and an argument a line, with its help in the next
column. What is indented further goes on with the line above.

An argument is called and typed as ``--name METAVAR:kind=default``; one without METAVAR is true where it is given. Kinds
are those of `commands.KINDS`, by default ``text``; a number may have bounds, such as ``int[1..)``. After the kind ``?``
stands for one that may be left out, ``+`` for one or more values, ``*`` for any number, ``&`` for one that may be given
again, ``!`` for an option that is needed, and ``~`` for one that a usual call needs. Of those that begin with ``/``
exactly one is needed. Help of ``-`` hides an argument.
"""

TABLE = """
@json
  --json                        print one JSON document on stdout
@settings
  --set KEY=VALUE:text&         override a key, such as algorithm.nodes=16
  --seed SEED:int[0..)          override the seed
  @json
@spec
  SPEC:path                     the experiment, a YAML file
  @settings
@reproducible
  --reproducible                take the noise from the seed instead of a fresh secret; then nothing is guaranteed
@model
  RESULTS:path                  a results folder, a party's --store, or a safetensors file
@log
  --log-file FILE:path          also write a log to FILE, after what is there: a JSON object a line if it ends in .json
                                or .jsonl, else lines for people; - is stderr
@study
  --jobs J:int[1..)             runs at a time (default: 1; on Ray: all processors)
  --engine {processes,ray}:text=processes  where runs are made: processes of this machine, or Ray, which is started here
                                unless RAY_ADDRESS names a cluster
@releases
  --sampling-rate Q:float(0..1]~  share of the rows in a batch, of poisson sampling
  --steps T:int[0..1e9]~        number of releases
  --delta D:float(0..1)~        of all of them together
  --mechanism {gaussian,l2_laplace}:text=gaussian  the noise law
  --size D:int[1..1e12]         of l2_laplace: number of coordinates released
  --sampling {poisson,fixed_size}:text=poisson  how batches are drawn
  --dataset-size N:int[1..)     of fixed_size sampling, in place of a rate
  --batch-size B:int[1..)       of fixed_size sampling, in place of a rate
  --accept-weak                 take a delta above 0.01, which says little
  --group M:int[1..10000]=1     the most rows of one person, who is protected
  --neighboring-relation {add_or_remove_one,replace_one}  of what is proved (default: add_or_remove_one for poisson,
                                replace_one for fixed_size)
  @json
@policy
  POLICY:path                   the owner's policy, a YAML file
  @json
@allowed
  --module REFERENCE:text&      model code to allow
  --pretrained FILE:path        the model that all start from, if there is one (default: start.safetensors beside the
                                invitation)
@signing
  --expires DAYS:int[1..3650]=90  for how long all is good
  --organiser KEYFILE:path      the organiser's key (default: organiser.key in DIR)
@issuing
  --examples A=N,B=N:counts~    each one's training examples, which is public
  --keys FOLDER:path            public keys NAME.pub that parties have sent
  @signing

run  runs.run  run an experiment
  SPEC:path?                    the experiment, a YAML file
  @settings
  @reproducible
  --repeat RESULTS:path         repeat the run of a results folder, with its noise secret
  --resume RESULTS:path         go on with the interrupted or killed run of a results folder
  --out OUT:path                folder for the results (default: runs/<spec>-seed<seed>,<what --set says>)
  --overwrite                   replace the results of an earlier run in --out
  --shards N:int[1..)           deal the nodes out to N processes of Ray, which is started here unless RAY_ADDRESS names
                                a cluster
  --trace FILE:path             also write every event and effect to FILE
  --checkpoint EVERY:interval   how often the run is kept in --out, to be resumed: 90s, 5m, 2h, or off (default: 60s)
  --live PORT:port?             show the report to a browser on this machine while the run goes on, at a port that is
                                free or at PORT
  --track TRACKER:text&         also tell a tracker: tensorboard, mlflow, wandb or trackio; those but the first are told
                                what no guarantee covers, such as test scores, only if they are called mlflow:all and so
                                on; may be given several times
  @log
new  runs.first_spec  write a first spec for one's own table
  | It looks at a CSV or Parquet file on this machine, and writes a commented spec for a first private run on it.
  | Ranges, categories and labels are what you declare, with flags or as answers in a terminal: they are public
  | knowledge, never learnt from private rows.
  NAME                          what the data set is called; the spec is NAME.yaml
  --data FILE:path              the table, CSV or Parquet
  --target COLUMN               what is to be predicted
  --owner COLUMN                whose row it is: each owner becomes a node
  --person COLUMN               which person a row is about, where persons have several
  --rows-per-person M:int[1..)  the most rows that one person has; 1: each row is another one
  --out FILE:path               the spec (default: NAME.yaml)
  --labels A,B                  the target's classes, in order
  --prevalence SHARE:float(0..1)  how common the second of two labels is, as known without these rows, such as 0.08
  --regression                  the target is a number, and has a --range in place of classes
  --range COLUMN=LOW..HIGH:text+  from where to where numbers mostly lie, such as age=0..120
  --mean COLUMN=MEAN,DEVIATION:text+  published figures of such numbers, such as heart_rate=80,15
  --categories COLUMN=A,B:text+  the texts that there can be, such as sex=female,male
  --boolean COLUMN:text+        true or false: yes and no, 1 and 0, in small or large letters
  --number COLUMN:text+         a number without a range, which is scaled privately
  --date COLUMN=FIRST..LAST:text+  from when to when dates mostly lie, such as admitted=2015-01-01..2024-12-31; dates
                                that are written otherwise with their format: born=1930-01-01..2010-12-31,%%d.%%m.%%Y
  --missing COLUMN=VALUE:text+  what an empty cell is read as
  --was-empty COLUMN:text+      a further feature says whether the cell was empty
  --missing-marks COLUMN=A,B:text+  what else says nothing, such as hb=-9; of all columns: --missing-marks=-9,999
  --drop COLUMN:text+           no feature, such as a number that only names a row
  --drop-unlabelled             rows without a target are left out, and counted
  --epsilon E:float(0..)=1      of the budget
  --delta D:float(0..1)         of the budget (default: below 1/(10 rows))
  --about KEY=TEXT:text+        for the model's card: its purpose, limits, persons (whose data) and who decided
  --csv KEY=VALUE:text+         how the file is written, such as header=false
  --set KEY=VALUE:text+         any other key, as of gossamer run
check  runs.run  say what a run would do and guarantee, without running it
  | It loads the data, fixes schedule and noise, and says it in plain words.
  @spec
  @reproducible
predict  runs.models  predict for every row of a file with a run's model
  @model
  DATA:path                     rows, such as a CSV file; a target is not needed
  --json                        print one JSON document, with each class's probability
  --out FILE:path               write to FILE instead of printing
  --overwrite                   replace FILE
evaluate  runs.models  test a run's model on rows that have their targets
  @model
  DATA:path                     rows with their targets, such as a CSV file
  --by COLUMN:text&             also for each group of rows by what stands in a column; may be given several times
  --least-rows N:int[1..)=10    of a group; smaller ones are merged
  --threshold P:float[0..1]     of two classes: the probability of the second above which it is named (default: 0.5)
  --cost KEY=C:text&            cost of a false_negative or false_positive (default: 1 each): also find the threshold
                                that costs least, and take it unless there is a --threshold
  @json
export  runs.models  write a run's model for PyTorch, ONNX Runtime or scikit-learn
  | All that is done to raw numbers is in it.
  @model
  --to {torch,onnx,sklearn}:text!  the program
  --out FILE:path               where to (default: beside the model)
  --overwrite                   replace FILE
report  runs.report  write a page that shows what runs did, or how a party's node is
  | It is one file that needs no network, in the first folder.
  DIR:path+                     results folders of runs, or a state folder of a deployed party
  --out FOLDER:path             where to (default: the first folder)
  --public                      leave out what no guarantee covers, such as scores on test examples
  --figures                     also write each figure as SVG, PNG and CSV into report-figures beside the page
  --card                        also write the card of a run's model, as model-card.md
  --pdf                         also write the page on paper, as report.pdf beside it
  --live PORT:port?             write nothing: show the page to a browser on this machine, as the folders change, until
                                interrupted; at a port that is free, or at PORT
sweep  runs.studies  run every combination of settings with several seeds, and compare them
  | The same command goes on with a sweep that was interrupted. The exit code is 1 if a run failed.
  @spec
  @reproducible
  --grid KEY=A,B,C:text&        values of a key, such as algorithm.batch_size=8,32; several give every combination
  --label KEY=A,B,C:text&       what the values of a key are called, in their order, such as algorithm.clip=tight,loose
  --seeds N:int[1..)=5          runs of each setting
  --figure AXES:text            draw a figure for an article, such as x=budget.epsilon,y=accuracy,hue=algorithm
  --baseline KEY=VALUE:text     test the others of a key against one of its values, in pairs by seed
  @study
  --out DIR:path                folder for the runs' folders (default: runs/<spec>-sweep)
price  runs.studies  say what privacy and distance cost: runs without noise, alone and in one place
  | It runs a private federation with and without noise, each party alone, and all rows in one place, with the same
  | seeds. The same command goes on with one that was interrupted.
  @spec
  @reproducible
  --seeds N:int[1..)=3          runs of each
  --epsilons A,B,C:numbers      further budgets of the federation (default: 0.5,1,2,4)
  @study
  --out DIR:path                folder for the runs' folders (default: runs/<spec>-price)
account  audit.accounting  compute the epsilon that is proved for a number of subsampled noisy releases
  --noise-multiplier Z:float[0.01..1e6]~  of gaussian: sd of the noise on the sum over the clip
  @releases
  --epsilon E:float             of l2_laplace, in place of a noise multiplier: pure epsilon of one release on a full
                                batch
  --rates FILE:path             lines rate,count in place of one rate and steps
  --composition {simple,advanced,optimal,tight,all}  of l2_laplace: how releases add up (default: tight)
  --profile                     the delta at every epsilon, not at one: some in words, all in --json
  --observers SPEC:path         in place of all these: what nodes of this run learn of each other, who see less than
                                everybody; a spec or a results folder
  --observer NAMES:text&        with --observers: node:NAME, coalition:NAME,NAME, link:NAME,NAME, final or everyone,
                                joined by plus (default: each node)
  --in-draws M:int[1..)         with --observers: the most of a party's releases that one example is in (default: all)
  --set KEY=VALUE:text&         with --observers: override a key of the spec
  --out FILE:path               with --observers: a CSV file for all pairs
calibrate  audit.accounting  compute the least noise whose proved epsilon is within a budget
  --epsilon E:float(0..)!       the budget
  @releases
plan  runs.plan  compute what a run would be made of, such as MAPA's stages, from public constants; no data is read
  ...
audit    check what a guarantee rests on
  | It runs a spec on data sets that it says nobody can tell apart.
audit leak  audit.attacks  run pairs of neighbouring data sets with equal coins, and look for what differs
  | The second run is handed the releases of the first, and each of its own may be at most its sensitivity away.
  @spec
  --pairs N:int[1..)=100        how many pairs
  --updates U:int[1..)=200      most updates of a run
verify  audit.verify  check a guarantee from receipts, by a second implementation
  | It needs no data, and shares no code with the library's own accounting. Exit code 0 if all follows that is promised
  | of the parties whose receipts these are, 1 if something does not, 2 if a file cannot be read. The code is one file,
  | gossamer/verify/gossamer_verify.py, which runs by itself.
  RESULTS:path                  a results folder, or a file with receipts
  GUARANTEE:path?               a guarantee.json (default: the folder's)
  @json
attack    attack what a run releases, and audit its guarantee from below
attack inversion  audit.attacks  recover examples from the gradients that a spec's first node would release
  @spec
  --examples N:int[1..)=8       how many batches to attack
  --batch-size B:int[1..)=1     examples in a batch
  --epsilon E:float+            also compare noise of the L2 Laplace mechanism with this epsilon for one release
  --method {auto,linear,matching}:text=auto  how; auto: by the first layer
  --out OUT:path                folder for the figure (default: runs/<spec>-inversion)
attack membership  audit.attacks  tell training from test examples by their loss at a run's model; needs the run's data
  RESULTS:path                  the results folder of a run
  --out OUT:path                folder for the figure (default: RESULTS)
  @json
attack audit  audit.attacks  run a spec with canaries included by coin flips, and bound its epsilon from below
  | The coins are guessed from what was released; the bound is beside the proved upper one.
  @spec
  @reproducible
  --canaries M:int[1..)         how many coins are flipped (default: one for each example)
  --guesses R:int[1..)          about how many of them to guess (default: what bounds epsilon best)
  --canary {auto,random,mislabelled}:text=auto  what canaries are; auto: random directions, and mislabelled examples
                                where features are sparse
  --score {gradient,loss}:text=gradient  guess from all released gradients, or from the run's model alone
  --confidence P:float(0..1)=0.95  of the bound
  --out OUT:path                folder for the results (default: runs/<spec>-audit-seed<seed>,<what --set says>)
  --overwrite                   replace the results of an earlier audit in --out
algorithms  data.known  list known algorithms, and those of other distributions with the code that a policy has to allow
  | Topologies, partitions and losses that others register are listed, too. Nothing of it is imported.
  @json
datasets  data.known  list known datasets and where their files are looked for; GOSSAMER_DATA adds folders
  @json
federation    found a federation between organisations, and let parties in
federation identity  federation.actions  make this party's own key, on its own machine
  | The private key stays here; the public key goes to the organiser.
  NAME                          the party
  --out FOLDER:path             where to keep it (default: a new folder NAME)
  @json
federation new  federation.actions  write an invitation for each party, and the broker's configuration
  DIR:path                      a new folder for all of it
  --spec SPEC:path!             the experiment, a YAML file
  --nodes A,B:names!            the parties with data
  --broker URL:text!            such as mqtts://broker.example.org:8883
  --wheel FILE:path             the wheel that all install; its hash goes into the invitations
  --insecure                    accept mqtt:// to another machine, without TLS
  @issuing
  @json
federation add  federation.actions  let another party into a running federation
  | New invitations to the same run are written for everybody.
  DIR:path                      the folder that `new` made
  --node, --nodes D:names!      who joins
  @issuing
  @json
federation renew  federation.actions  write new invitations and certificates for the same parties before they expire
  | Keys stay what they were.
  DIR:path                      the folder that `new` made
  @signing
  @json
federation show  federation.actions  say what an invitation says, and what the run would release
  | The invitation's signature is checked.
  FILE:path                     the invitation
  --organiser FINGERPRINT       whose signature it must have
  @allowed
  @json
federation broker  federation.actions  have one broker serve several federations
  | Its configuration, and certificates for their parties, are written.
  DIR:path*                     a folder that `new` made, or an invitation
  / --out BROKER:path           a new folder for all of it
  / --join BROKER:path          a broker's folder, to let federations in
  --place FOLDER:path           where the broker's files will lie on its machine (default: BROKER/broker)
  @json
data    say what a data owner's data have spent over all runs, and what they consist of
data show  data.data  print what each data set of a policy has spent, by run, and what is left; no data are read
  @policy
data update  data.data  accept a data set as it is now; everything that was spent under its name stays spent
  @policy
  --data PATH:path              the file or folder (default: the policy's path)
  --name NAME                   of the data set in the policy; not needed if it has one only
  --new-key                     make a new key where the ledger's is lost; what other data sets consist of has to be
                                accepted again, too
  --renamed-from OLD            the name that the data set had before: what was spent under it is spent under the new
                                one
  --adds-up                     accept examples that other names have: what all of them spend adds up
data backup  data.data  copy the ledger of a policy and its key to new files, also while nodes run
  @policy
  OUT:path                      the copy; its key goes to OUT.key
node  federation.node  run a party's node until its part in the run is over
  | Interrupted, or killed, it goes on where it was when it is started again.
  --invitation FILE:path~       the invitation; its folder holds the keys
  --organiser FINGERPRINT       the organiser's fingerprint (default: those in the policy)
  --identity FILE:path          the private key (default: identity.key beside the invitation)
  --data PATH:path              the training examples, a file or folder (default: as in the policy)
  --data-name NAME              what the policy calls the data, if it knows several
  --test PATH:path              examples to test the model on at the end
  --policy FILE:path            what the data's owner allows
  @allowed
  --store DIR:path              the state folder (default: state beside the invitation)
  --[no-]resume                 go on from the store if there is one
  --believe-store               go on even if peers know of more messages than the store holds; of receipts it overrules
                                nobody
  --connect-timeout S:float[0..)=60  for the first connection
  --wait S:float[0..)=60        for neighbours, before the start
  --gone-after S:float[0..)=300  silence that counts as gone
  --trace FILE:path             also write every event and effect to FILE
  --quiet                       write to node.log, and --log-file, alone
  --live PORT:port?             show the node's report to a browser on this machine while it runs, at a port that is
                                free or at PORT
  @log
  --log-format {text,json}      lines for people, or a JSON object a line (default: as FILE ends)
  --log-level {debug,info,warning,error}  the least that the log is told (default: info)
  --log-size MB:float(0..1e6]   begin a new FILE then, and keep 5 older (default: 10)
node backup  federation.node  copy the state folder of a node that is stopped; only one of the two may go on
  STATE:path                    the state folder
  OUT:path                      the copy: a folder that does not exist yet
status  federation.node  say how nodes are, and how they find their peers; exit code 0: well, 1: warning, 2: critical
  STORE:path+                   the state folder of a node
  @json
  --warn-days N:float[0..)=14   warn so many days before papers expire
  --warn-budget SHARE:float[0..)=0.9  warn once so much of the policy's budget is charged; 1 for never
  --prometheus FILE:path        also write metrics to FILE, which ends with .prom, for the textfile collector of
                                Prometheus
  --alive                       exit code 0 if each node runs, has the broker and has written its status within two
                                minutes, else 1: for the health check of a container
stop  federation.node  end a node's process; it can be started again and goes on
  STORE:path                    the state folder of the node
  --leave                       end the node's part in the run for good
  --timeout S:float[0..)=30     seconds to wait
up  federation.node  run a whole federation on this machine, a process for each party
  | The data of a spec are dealt out to its nodes, which meet over a broker here. For trying out: parties of real
  | federations hold their own data.
  @spec
  --out OUT:path                folder of the federation (default: runs/<spec>-up-seed<seed>,<what --set says>)
  --broker {embedded,mosquitto}:text=embedded  where they meet
  --trace                       each party also writes every event and effect to trace.bin
  --live PORT:port?             show the parties' report to a browser on this machine while they run, at a port that is
                                free or at PORT
  @log
  --reproducible                -
average  runs.models  average the models that parties of a run have saved, such as those of gossip's nodes
  | Whoever averages the same models with the same weights gets the same file.
  RESULTS:path+                 a party's model.safetensors, or its folder
  --weights W,W,...:numbers     what each counts, in this order (default: equally)
  --out FOLDER:path=average     for the mean
  @json
simulate-faults  runs.simulate_faults  drive small runs of a spec's algorithm through generated faults
  | After every event it is checked what must hold. The runs have sessions, stores, ledgers and data sides. Faults are
  | loss, delay, repetition, reordering, partitions and killed processes.
  @spec
  --seeds N:int[1..)=100        how many
  --first K:int[0..)=0          the first of them
  --jobs J:int[1..)=1           processes at work
"""
