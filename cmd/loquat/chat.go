package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/tui"
	"loquat/internal/tui/fullscreen"
)

const (
	// maxInput is the most bytes of a typed or piped message. The server's own limit is
	// limits.max_body_bytes.
	maxInput = 8 << 20
	// chatTimeout is how long a chat waits for a silent server.
	chatTimeout = time.Minute
	// cancelTimeout is how long to wait for the answer to a cancel.
	cancelTimeout = 5 * time.Second
)

type chatFlags struct {
	remoteFlags
	servers, tokens repeated // all that were given, in order; the first is in remoteFlags, too
	session, agent  string
	theme           string
	noStream, plain bool
}

func newChatCommand() *cobra.Command {
	var f chatFlags
	cmd := &cobra.Command{
		Use:   "chat [MESSAGE]",
		Short: "Chat in the terminal",
		Long: "Chats with a running server, or with a server that it starts in its own process. At a terminal it takes\n" +
			"the whole screen; F1 lists the keys. With --plain it writes line after line, as screen readers need it.\n" +
			"With a message, or with a message on standard input, it prints the reply and exits. In a pipe, standard\n" +
			"output has only the text of the reply.",
		Example: strings.Join([]string{
			`  loquat chat --demo "What is a loquat?"`,
			`  loquat chat --server http://127.0.0.1:8787 --session SESSION`,
		}, "\n"),
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.session, "session", "", "`id` of a session to continue (default: a new one)")
	flags.StringVar(&f.agent, "agent", "", "`id` of the agent of a new session")
	flags.BoolVar(&f.noStream, "no-stream", false, "ask for whole replies instead of streamed ones")
	flags.BoolVar(&f.plain, "plain", false, "write line after line instead of taking the whole screen")
	flags.StringVar(&f.theme, "theme", fullscreen.ThemeNames()[0], "`theme` of the whole screen: "+strings.Join(fullscreen.ThemeNames(), ", "))
	f.servers.of, f.tokens.of = &f.server, &f.token
	flags.Lookup("server").Value, flags.Lookup("token").Value = &f.servers, &f.tokens
	return cmd
}

// run chats until the reply is complete or the user ends the chat. It handles Ctrl-C itself,
// so it ignores the context that main cancels on Ctrl-C. SIGTERM ends the chat.
func (f *chatFlags) run(cmd *cobra.Command, args []string) error {
	if f.session != "" && f.agent != "" {
		return usageError{errors.New("--agent chooses the agent of a new session; leave it out with --session")}
	}
	message, oneShot, err := f.message(cmd.Context(), cmd.InOrStdin(), args)
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	outer := context.WithoutCancel(cmd.Context())
	ctx, stop := signal.NotifyContext(outer, syscall.SIGTERM)
	defer stop()
	switch {
	case err != nil:
		return err
	case !slices.Contains(fullscreen.ThemeNames(), f.theme):
		return usageError{fmt.Errorf("--theme: unknown theme %q; must be one of %s", f.theme, strings.Join(fullscreen.ThemeNames(), ", "))}
	case !oneShot && !f.plain && takesScreen(cmd.OutOrStdout(), os.Getenv("TERM")):
		return f.runFullscreen(ctx, outer, cmd)
	}
	c, closeClient, err := f.connect(outer, cmd.ErrOrStderr(), client.Options{Patience: chatTimeout})
	if err != nil {
		return err
	}
	defer closeClient()
	talk := &conversation{client: c, sessionID: f.session, agent: f.agent, stream: !f.noStream, interrupts: interrupts, stderr: cmd.ErrOrStderr()}
	talk.view, talk.prompt = screens(cmd.OutOrStdout(), cmd.ErrOrStderr())
	if oneShot {
		err = talk.ask(ctx, message)
	} else {
		err = talk.converse(ctx, cmd.InOrStdin())
	}
	if !talk.begun {
		return err
	}
	hint := "continue with: " + f.hint(cmd, f.server, talk.sessionID)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, hint) // the failure first, then the hint
	}
	fmt.Fprintln(cmd.ErrOrStderr(), hint)
	return nil
}

// message returns the message of a one-shot chat. It ends with ctx. The chat is a conversation only if there is
// no argument and standard input is a terminal.
func (f *chatFlags) message(ctx context.Context, stdin io.Reader, args []string) (text string, oneShot bool, err error) {
	if len(args) == 1 {
		return args[0], true, nil
	}
	if isTerminal(stdin) {
		return "", false, nil
	}
	b, err := io.ReadAll(io.LimitReader(interruptible(ctx, stdin), maxInput+1))
	switch {
	case ctx.Err() != nil:
		return "", true, errors.New("interrupted before the message was complete")
	case err != nil:
		return "", true, fmt.Errorf("read the message from standard input: %w", err)
	case len(b) > maxInput:
		return "", true, usageError{fmt.Errorf("the message on standard input is over %d bytes; send a part of it", maxInput)}
	case strings.TrimSpace(string(b)) == "":
		return "", true, usageError{errors.New("there is no message: give one as an argument or on standard input")}
	}
	return string(b), true, nil
}

// hint returns the command that continues a session of a server.
func (f *chatFlags) hint(cmd *cobra.Command, server, sessionID string) string {
	hint := "loquat chat"
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "server":
			hint += " --server " + shellWord(server)
		case "config", "data":
			hint += " --" + flag.Name + " " + shellWord(flag.Value.String())
		case "demo":
			hint += " --demo"
		}
	})
	return tui.OneLine(hint + " --session " + sessionID)
}

// shellWord quotes a string that a shell would split or expand.
func shellWord(s string) string {
	if strings.ContainsAny(s, " \t\n\"'\\$&;|<>()*?[]#~`!") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// screens returns the renderer of a chat and where to print prompts. Prompts are discarded
// unless standard error is a terminal.
func screens(stdout, stderr io.Writer) (*tui.Renderer, io.Writer) {
	outLook, errLook := tui.Detect(stdout, os.Getenv), tui.Detect(stderr, os.Getenv)
	text, side := tui.NewScreen(stdout, outLook), tui.NewScreen(stderr, errLook)
	if outLook.Terminal && errLook.Terminal {
		side = text
	}
	if errLook.Terminal {
		return tui.NewRenderer(text, side), stderr
	}
	return tui.NewRenderer(text, side), io.Discard
}

// conversation is a chat of several messages.
type conversation struct {
	client     *client.Client
	sessionID  string // empty until the first message of a new session
	agent      string
	begun      bool // the session has a request of this chat
	stream     bool
	view       *tui.Renderer
	prompt     io.Writer
	stderr     io.Writer
	interrupts <-chan os.Signal
}

const chatHelp = `/new   begins a new session
/quit  ends, as the end of input does
/help  prints this
//x    sends /x
`

// converse sends one message after the other. It prints the error of a failed request and
// continues.
func (c *conversation) converse(ctx context.Context, stdin io.Reader) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	lines := readLines(ctx, stdin)
	for {
		fmt.Fprint(c.prompt, "> ")
		var line inputLine
		var more bool
		select {
		case <-ctx.Done():
			return nil
		case <-c.interrupts:
			fmt.Fprintln(c.prompt)
			return nil
		case line, more = <-lines:
		}
		if line.err != nil || !more {
			fmt.Fprintln(c.prompt)
			return line.err
		}
		switch text := strings.TrimSpace(line.text); text {
		case "":
		case "/quit":
			return nil
		case "/new":
			c.sessionID, c.begun = "", false
			fmt.Fprintln(c.stderr, "the next message begins a new session")
		case "/help":
			fmt.Fprint(c.stderr, chatHelp)
		default:
			c.answer(ctx, text)
		}
	}
}

func (c *conversation) answer(ctx context.Context, text string) {
	if strings.HasPrefix(text, "/") {
		rest, escaped := strings.CutPrefix(text, "//")
		if !escaped {
			fmt.Fprintf(c.stderr, "there is no command %q; /help lists the commands; to send a message that begins with /, type //\n", text)
			return
		}
		text = "/" + rest
	}
	if err := c.ask(ctx, text); err != nil && err != errCancelled { // the renderer reports a cancel
		c.view.Show(loquat.Event{Type: loquat.ErrorEvent, Detail: err.Error()})
	}
}

// errCancelled reports that the user cancelled the request.
var errCancelled = errors.New("the request was cancelled")

// ask sends text and shows the reply until the request has ended. It returns the error of the
// request.
func (c *conversation) ask(ctx context.Context, text string) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	accepted := make(chan string, 1)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watchInterrupts(ctx, accepted, end)
	}()
	err := c.request(ctx, text, accepted)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	end(nil)
	<-watched
	if err == nil {
		err = c.view.Err()
	}
	return err
}

// watchInterrupts cancels the request on the first interrupt, once its id is known. On the
// second it stops waiting for the end.
func (c *conversation) watchInterrupts(ctx context.Context, accepted <-chan string, end context.CancelCauseFunc) {
	select {
	case <-c.interrupts:
	case <-ctx.Done():
		return
	}
	select {
	case id := <-accepted:
		cancelCtx, stop := context.WithTimeout(ctx, cancelTimeout)
		defer stop()
		if _, err := c.client.Cancel(cancelCtx, id); err != nil {
			end(fmt.Errorf("cancel the request: %w", err))
			return
		}
	case <-c.interrupts:
		end(errCancelled)
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-c.interrupts:
		end(errCancelled)
	case <-ctx.Done():
	}
}

func (c *conversation) request(ctx context.Context, text string, accepted chan<- string) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	sent, err := c.client.Send(ctx, c.sessionID, loquat.Send{Content: &text, Stream: &c.stream, StreamTools: c.stream})
	if err != nil {
		return err
	}
	c.begun = true
	accepted <- sent.RequestID
	var failure error
	for e, err := range c.client.Follow(ctx, client.Query{RequestID: sent.RequestID, OmitSession: true}) {
		if err != nil {
			return err
		}
		if e.Type == loquat.ErrorEvent {
			failure = errors.New(e.Detail) // the caller shows it
			c.view.Failed(e.RequestID)
			continue
		}
		c.view.Show(e)
		switch e.Type {
		case loquat.RequestCancelled:
			failure = errCancelled
		case loquat.RequestCompleted:
			return failure
		}
	}
	return ctx.Err()
}

// begin creates the session of the first message.
func (c *conversation) begin(ctx context.Context) error {
	if c.sessionID != "" {
		return nil
	}
	s, err := c.client.CreateSession(ctx, loquat.NewSession{AgentID: c.agent})
	c.sessionID = s.SessionID
	return err
}

type inputLine struct {
	text string
	err  error
}

// readLines sends the lines of r. A read from a terminal cannot be interrupted, so its
// goroutine may live until the process ends.
func readLines(ctx context.Context, r io.Reader) <-chan inputLine {
	lines := make(chan inputLine)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(r)
		scanner.Buffer(nil, maxInput)
		for scanner.Scan() {
			select {
			case lines <- inputLine{text: scanner.Text()}:
			case <-ctx.Done():
				return
			}
		}
		if err := scanner.Err(); err != nil {
			select {
			case lines <- inputLine{err: fmt.Errorf("read standard input: %w", err)}:
			case <-ctx.Done():
			}
		}
	}()
	return lines
}
