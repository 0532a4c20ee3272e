# Renders jobs: a line of JSON with templates and a spec comes in, lines of JSON with what became of them go out.
module WindlassHelper
  # LARGEST_JOB of the library, for all templates of a job.
  LARGEST = 32 << 20
  IDLE = 30

  # Templates that print or read have nothing to do with the lines.
  INPUT = $stdin.dup
  OUTPUT = $stdout.dup
  OUTPUT.sync = true
  nothing, nobody = IO.pipe
  nobody.close
  $stdin.reopen(nothing)
  $stdout.reopen($stderr)

  # The templates of each job that was sent so far: their names, and what ERB made of them.
  JOBS = {}

  module_function

  def say(line)
    OUTPUT.write(JSON.generate(line) << "\n")
  end

  def run
    say('ready' => RUBY_VERSION)
    # Nobody asks any more: what was rendered goes from memory with this process.
    while INPUT.wait_readable(IDLE) && (line = INPUT.gets)
      answer(JSON.parse(line))
    end
    exit!
  end

  def answer(request)
    id = request['id']
    sources = request['templates']
    JOBS[request['job']] = sources.map { |name, text| [name, source(text)] } if sources
    dumped = Marshal.dump(request['spec'])
    context = Bosh::Template::EvaluationContext.fresh
    texts = []
    errors = []
    bytes = 0
    spent = false
    JOBS.fetch(request['job']).each_with_index do |(name, source), at|
      say('id' => id, 'at' => at)
      begin
        texts << render(source, context.new(dumped), name, LARGEST - bytes)
        bytes += texts.last.bytesize
      rescue Exception => e
        spent ||= e.is_a?(NoMemoryError)
        errors << { 'at' => at, 'line' => line(e, name), 'message' => message(e) }
        # A failing monit file is the only error.
        break if at.zero?
      end
    end
    (Thread.list - [Thread.current]).each(&:kill)
    say(errors.empty? ? { 'id' => id, 'texts' => texts } : { 'id' => id, 'errors' => errors })
    exit! if spent
  end

  # A text without code, or the code that ERB makes of a template.
  def source(text)
    text.include?('<%') ? { code: ERB.new(text, trim_mode: '-').src } : { text: text }
  end

  def render(source, context, name, room)
    text = source[:text]
    # ERB puts a line before the template's first.
    text ||= eval(source[:code], context.get_binding, name, 0).dup.force_encoding(Encoding::UTF_8)
    raise 'the template gives bytes that are not UTF-8' unless text.valid_encoding?
    raise "the job was stopped when its files had #{LARGEST >> 20} MiB" if text.bytesize > room

    text
  end

  def line(error, name)
    at = (error.backtrace || []).find { |entry| entry.start_with?("#{name}:") }
    at && at[name.length + 1..].to_i
  end

  def message(error)
    text = error.is_a?(NoMemoryError) ? "#{error}; a template may take 1 GiB" : error.to_s
    text.dup.force_encoding(Encoding::UTF_8).scrub
  end
end

WindlassHelper.run
